"""Backends: where requests are served. `simulated` is the compiled engine in virtual time."""
