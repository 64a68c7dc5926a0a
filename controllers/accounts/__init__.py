"""Routers decide by what they keep: beliefs about the caches, work in flight and measured speeds, text trees."""
