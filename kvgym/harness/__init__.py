"""Runs controllers on workloads and compares them: paired seeds, request records, statistics, reports."""
