"""The commands of kvgym do their work here: run, watch, compare, trace, list, bench and serve-workers."""
