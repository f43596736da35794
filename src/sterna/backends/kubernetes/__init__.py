"""Kubernetes as a world: the operator's backend. Its objects are the only memory: it may be killed at any moment."""
