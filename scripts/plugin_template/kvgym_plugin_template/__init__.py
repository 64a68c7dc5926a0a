"""This package holds one plug-in of each kind for kvgym; docs/plugins.md of kvgym explains them."""
