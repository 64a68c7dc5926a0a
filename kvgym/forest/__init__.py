"""The prefix forest: which prompts share which prefixes, as one flat radix tree over all prompts of a workload."""
