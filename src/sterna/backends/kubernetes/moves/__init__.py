"""moves."""
