"""Reference controllers: who decides where a request goes and what a full cache evicts.

`routing/` holds routers, one per file; `eviction/` holds eviction policies, one compiled policy per file. `base` is the
contract of a router and its adapters to and from stable-baselines3.
"""
