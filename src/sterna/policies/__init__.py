"""How many workers for each job: one rule, one file."""
