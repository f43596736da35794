"""Names under which replicas find each other: one headless service each, so that who comes again elsewhere is found."""

from __future__ import annotations


def service_name(job: str, type_: str, index: int) -> str:
    """Also that of the replica's pod (DRAGON-4)."""
    return f"{job}-{type_}-{index}"


def host_of(job: str, namespace: str, type_: str, index: int, domain: str = "") -> str:
    """`domain`: the cluster's, where names below `.svc` are not found without it (CUSTOM_CLUSTER_DOMAIN)."""
    host = f"{service_name(job, type_, index)}.{namespace}.svc"
    return f"{host}.{domain}" if domain else host
