"""Requests are served by an event loop, each worker's scheduler and batches, queues and faults."""
