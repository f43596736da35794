"""The worlds. They know nothing of one another."""
