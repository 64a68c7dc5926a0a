"""The one room that knows numba: cached compilation, inlined parts, whole tuples, entry points, values as words."""
