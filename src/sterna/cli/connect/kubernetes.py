"""Connects a command to a Kubernetes cluster: its `ClusterService` runs in this process, with the user's kubeconfig.

Imported only by commands that mean a Kubernetes cluster.
"""

from __future__ import annotations

import click

from sterna.backends.kubernetes.query.cluster import KubernetesCluster, QueryScope
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from sterna.cli.connect.target import KubernetesTarget
from sterna.model.snapshot import JobKey, Snapshot
from sterna.service.views import PolicyView, StartingChange


def connect(target: KubernetesTarget) -> KubernetesCluster:
    """Connect to the cluster that the options mean; the connection is closed when the command ends."""
    access = access_of(target.kubeconfig, target.context)
    scope = QueryScope(target.namespace or access.namespace, target.is_everywhere, access.context)
    cluster = KubernetesCluster(lambda: Client(access), scope, _find_starting_changes, on_notice=_show_notice)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(cluster.close)
    return cluster


def _find_starting_changes(snapshot: Snapshot, key: JobKey, rules: PolicyView) -> list[StartingChange]:
    from sterna.explain.starting_changes import find_starting_changes  # imports the engine

    return find_starting_changes(snapshot, key, rules)


def _show_notice(notice: str) -> None:
    click.echo(f"note: {notice}", err=True)
