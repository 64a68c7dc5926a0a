"""Configuration is dataclasses from YAML, the name tables of plug-ins, and what fleets and routers can be set to."""
