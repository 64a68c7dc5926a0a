"""One worker's cache is a radix tree or blocks; eviction policies plug in, made of ready orders."""
