"""Step costs from measurements: `kvgym profile` measures a server, `kvgym calibrate` fits what a file holds.

`observations` reads step tables, request records and benchmark output, `probing` measures a live server, `fitting`
turns either into the coefficients of `kvgym.costs.linear.Linear` with their uncertainty, `fit_report` shows and writes
them.
"""
