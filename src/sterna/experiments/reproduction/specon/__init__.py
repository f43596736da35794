"""specon."""
