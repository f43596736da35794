"""Orders and contests shared by policies: Tiresias queues, shortest remaining, marginal gain, AFS-L.

The policies themselves are in `sterna.policies`.
"""
