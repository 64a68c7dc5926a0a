"""A comparison has a grid and cells; it is run one after the other, stored and brought together."""
