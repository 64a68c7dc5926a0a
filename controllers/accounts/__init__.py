"""What routers keep to decide by: beliefs about the caches, work in flight and measured speeds, text trees."""
