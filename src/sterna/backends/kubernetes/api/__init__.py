"""Names and values of the Kubernetes API: resources, typed objects, labels, annotations, RBAC rules.

No I/O and no decisions belong here; every other folder of this backend may import it.
"""
