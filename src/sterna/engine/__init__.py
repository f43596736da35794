"""Pure functions from a snapshot to a decision. No clock, no randomness, no input or output, no memory."""
