"""Host names of replicas: one headless service each, so that a replica keeps its name when it moves."""

from __future__ import annotations


def service_name(job: str, type_: str, index: int) -> str:
    """Also the name of the replica's pod."""
    return f"{job}-{type_}-{index}"


def host_of(job: str, namespace: str, type_: str, index: int, domain: str = "") -> str:
    """`domain`: of the cluster, if names below `.svc` do not resolve without it (CUSTOM_CLUSTER_DOMAIN)."""
    host = f"{service_name(job, type_, index)}.{namespace}.svc"
    return f"{host}.{domain}" if domain else host
