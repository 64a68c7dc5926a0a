"""Routers know the caches by prefix indexes of what they sent, or of what KV events report."""
