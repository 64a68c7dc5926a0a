"""The prefix forest says which prompts share which prefixes, as one flat radix tree over a workload's prompts."""
