"""Which running worker moves: one rule a file, found by import."""
