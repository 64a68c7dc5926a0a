"""Published experiments as configuration: what was run, what was claimed, and whether the simulator agrees.

`experiment` reads a file of configs/experiments and keeps what its runs gave, `claims` judges, `experiments_page`
writes EXPERIMENTS.md. `scripts/reproduce.py` is the command.
"""
