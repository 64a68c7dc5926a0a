"""Request logs of all kinds: how their rows are read, what an import makes of them, and the workload file."""
