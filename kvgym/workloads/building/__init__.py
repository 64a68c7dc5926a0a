"""Sources build workloads from arrival times, sessions, id chains and regions, and keep some between episodes."""
