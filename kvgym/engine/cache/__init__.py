"""One worker's radix cache: the cache itself, how eviction policies plug in, and the orders that they are made of."""
