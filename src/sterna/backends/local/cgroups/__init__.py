"""Control groups of replicas: version 1, version 2, or CPU affinity where neither is writable.

Choosing cores for a node belongs to `store`.
"""
