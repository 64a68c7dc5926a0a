"""Reference controllers decide where a request goes and what a full cache evicts.

`routing/` holds routers, one per file, `accounts/` what several of them keep to decide by; `eviction/` holds eviction
policies, one compiled policy per file; `learned/` plays and trains models. The contract of a router and its adapters to
and from stable-baselines3 are `kvgym.control`.
"""
