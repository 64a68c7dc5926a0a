"""What serves requests: the event loop, each worker's scheduler and batches, queues, faults, and what clients see."""
