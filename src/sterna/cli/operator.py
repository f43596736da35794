"""`sterna operator`: the scheduler of a Kubernetes cluster, in the cluster or beside it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sterna.settings import OperatorSettings, entry, tree_of

_USUAL = OperatorSettings()


def _option(path: str, **more: Any) -> Any:
    """The flag of a setting."""
    setting = entry(f"operator.{path}")
    variables = [setting.environment, *setting.aliases]
    metavar = setting.metavar or None
    return typer.Option(setting.flag, metavar=metavar, help=setting.words, envvar=variables, show_envvar=False, **more)


Kubeconfig = Annotated[str, _option("kubeconfig")]
Context = Annotated[str, _option("context")]
Namespace = Annotated[str, _option("namespace")]
Policy = Annotated[str, _option("policy")]
PolicyFor = Annotated[list[str] | None, _option("policy_for")]
Placement = Annotated[str, _option("placement")]
Migration = Annotated[str, _option("migration")]
Share = Annotated[str, _option("share")]
Claim = Annotated[str, _option("claim")]
RateLimit = Annotated[float, _option("rate_limit_seconds", min=0.0)]
DefaultImage = Annotated[str, _option("default_image")]
ClusterDomain = Annotated[str, _option("cluster_domain")]
Listen = Annotated[str, _option("listen")]
Authenticate = Annotated[bool, _option("authenticate")]
Identity = Annotated[str, _option("identity")]
LeaderElection = Annotated[bool, _option("leader_election")]
LeaseName = Annotated[str, _option("lease.name")]
LeaseNamespace = Annotated[str, _option("lease.namespace")]
LeaseDuration = Annotated[float, _option("lease.duration_seconds", min=1.0)]
LeaseRenew = Annotated[float, _option("lease.renew_seconds", min=0.5)]
LeaseRetry = Annotated[float, _option("lease.retry_seconds", min=0.1)]
Journal = Annotated[str, _option("journal")]


def command(
    kubeconfig: Kubeconfig = _USUAL.kubeconfig,
    context: Context = _USUAL.context,
    namespace: Namespace = _USUAL.namespace,
    policy: Policy = _USUAL.policy,
    policy_for: PolicyFor = None,
    placement: Placement = _USUAL.placement,
    migration: Migration = _USUAL.migration,
    share: Share = _USUAL.share,
    claim: Claim = _USUAL.claim,
    rate_limit: RateLimit = _USUAL.rate_limit_seconds,
    default_image: DefaultImage = _USUAL.default_image,
    cluster_domain: ClusterDomain = _USUAL.cluster_domain,
    listen: Listen = _USUAL.listen,
    authenticate: Authenticate = _USUAL.authenticate,
    identity: Identity = _USUAL.identity,
    leader_election: LeaderElection = _USUAL.leader_election,
    lease_name: LeaseName = _USUAL.lease.name,
    lease_namespace: LeaseNamespace = _USUAL.lease.namespace,
    lease_duration: LeaseDuration = _USUAL.lease.duration_seconds,
    lease_renew: LeaseRenew = _USUAL.lease.renew_seconds,
    lease_retry: LeaseRetry = _USUAL.lease.retry_seconds,
    journal: Journal = _USUAL.journal,
) -> int:
    """Schedule the training jobs of a Kubernetes cluster until it is interrupted; training goes on without it.

    Everything it knows is kept in the cluster: it may be killed at any moment, and another one goes on. Of several
    that run, the one that holds the Lease acts. What it cannot reach or may not see is told, and looked for again.

    \b
    Examples:
      sterna operator
      sterna operator --kubeconfig ~/.kube/config --context lab --policy elastic-srjf
      sterna operator --namespace training --policy dragon --migration balance --no-leader-election
      sterna operator --policy elastic-fifo --policy-for nvidia-a100=srjf --policy-for t4=tiresias:threshold=600
    """
    chosen = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "policy": policy,
        "policy_for": " ".join(policy_for or ()),
        "placement": placement,
        "migration": migration,
        "share": share,
        "claim": claim,
        "rate_limit_seconds": rate_limit,
        "default_image": default_image,
        "cluster_domain": cluster_domain,
        "listen": listen,
        "authenticate": authenticate,
        "identity": identity,
        "leader_election": leader_election,
        "lease.name": lease_name,
        "lease.namespace": lease_namespace,
        "lease.duration_seconds": lease_duration,
        "lease.renew_seconds": lease_renew,
        "lease.retry_seconds": lease_retry,
        "journal": journal,
    }
    from sterna.operator import run

    run(tree_of(OperatorSettings, chosen))
    return 0
