"""The compiled cluster engine: cache, eviction policies, scheduler, workers and the event loop.

Read in this order: `state` (what an episode is), `cache` (the radix cache contract), `policy` (how eviction plugs in),
`scheduler` (SGLang's batching rules), `cluster` (the event loop), `engine` (the Python object around it all).
"""
