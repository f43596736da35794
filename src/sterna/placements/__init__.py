"""Which node for each worker: one rule, one file."""
