"""The compiled cluster engine has caches, eviction policies, schedulers, workers and an event loop.

Read in this order: `state` (what an episode is), `cache.radix` (the radix cache contract), `cache.policy` (how eviction
plugs in), `serving.scheduler` (SGLang's batching rules), `serving.loop` (the event loop), `engine` (the Python object
around it all). `entry` holds the compiled functions that Python calls.
"""
