"""The live backend: real SGLang servers over HTTP, and kvgym's eviction policies inside them."""
