"""Endpoints of other systems that Sterna answers: container-migration, Kubeflow Trainer's status protocol, Voda.

Sterna's own endpoints are in the package above.
"""
