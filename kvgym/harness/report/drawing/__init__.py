"""Draws the plots of the report, of theory and of the README as SVG."""
