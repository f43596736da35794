"""Pure functions from a snapshot to a decision. No clock, no randomness, no input or output, no memory.

The rules themselves are in `policies`, `placements`, `migrations`, `cpu_shares` and `reservations`.
"""
