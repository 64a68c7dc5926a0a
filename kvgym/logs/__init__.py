"""Request logs of all kinds are read row by row and imported into a workload file."""
