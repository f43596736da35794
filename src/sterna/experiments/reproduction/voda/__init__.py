"""voda."""
