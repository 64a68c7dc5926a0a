"""The live backend drives real SGLang servers over HTTP, with kvgym's eviction policies inside them."""
