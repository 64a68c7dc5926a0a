"""Competitive ratios of eviction policies, measured on the engine's own cache against the offline optimum."""
