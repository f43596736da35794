"""The verbs of a running cluster: the `ClusterService` protocol, and the values of its methods.

Implemented by the local cluster, the Kubernetes cluster and the REST client of the commands. No I/O and no backend
belongs here.
"""
