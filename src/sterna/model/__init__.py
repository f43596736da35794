"""Values that every other package shares: the cluster at one instant (`Snapshot`), jobs, plans and reasons.

Nothing here computes a decision, does I/O or reads a clock.
"""
