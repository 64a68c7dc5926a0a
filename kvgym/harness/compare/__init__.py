"""A comparison: its grid and cells, one run after the other, what is stored of them and brought together."""
