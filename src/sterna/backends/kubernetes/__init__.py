"""Backend for Kubernetes clusters. API objects are its only durable state: the operator may be killed at any time.

Rules, the round loop and the parsing of manifests do not belong here.
"""
