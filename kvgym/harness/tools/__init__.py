"""What the commands of kvgym do: run, watch, compare, trace, list, bench and serve-workers."""
