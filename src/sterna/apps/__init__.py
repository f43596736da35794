"""Programs that run a cluster: the daemon of a local cluster and the operator of a Kubernetes cluster.

Each wires a backend, its rules, the HTTP application and the round loop. No scheduling logic belongs here.
"""
