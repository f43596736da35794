"""Commands on a running cluster: submit, get, logs, scale and the like.

They work alike on a local cluster, a REST server and Kubernetes.
"""
