"""One room knows numba: cached compilation, inlined parts, whole tuples, entry points, values as words."""
