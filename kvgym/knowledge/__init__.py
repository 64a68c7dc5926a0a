"""What routers know of the caches: prefix indexes of what they sent, or of what KV events report."""
