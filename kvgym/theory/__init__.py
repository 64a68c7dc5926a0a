"""Competitive ratios of eviction policies are measured on the engine's own cache against the offline optimum."""
