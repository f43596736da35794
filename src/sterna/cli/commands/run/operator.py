"""`sterna operator`: the scheduler of a Kubernetes cluster, in the cluster or beside it."""

from __future__ import annotations

from typing import Annotated

from sterna.cli.parsing.flags import flag
from sterna.settings import OperatorSettings, make_settings

_USUAL = OperatorSettings()


Kubeconfig = Annotated[str, flag("operator.kubeconfig")]
Context = Annotated[str, flag("operator.context")]
Namespace = Annotated[str, flag("operator.namespace")]
Policy = Annotated[str, flag("operator.policy")]
PolicyFor = Annotated[list[str] | None, flag("operator.policy_for")]
Placement = Annotated[str, flag("operator.placement")]
Migration = Annotated[str, flag("operator.migration")]
CpuShare = Annotated[str, flag("operator.cpu_share")]
Reservation = Annotated[str, flag("operator.reservation")]
RateLimit = Annotated[float, flag("operator.rate_limit_seconds", min=0.0)]
DefaultImage = Annotated[str, flag("operator.default_image")]
GpuResource = Annotated[str, flag("operator.gpu_resource")]
KubeShare = Annotated[str, flag("operator.kubeshare")]
ClusterDomain = Annotated[str, flag("operator.cluster_domain")]
Listen = Annotated[str, flag("operator.listen")]
RemoteApi = Annotated[bool, flag("operator.remote_api")]
Authenticate = Annotated[bool, flag("operator.authenticate")]
Identity = Annotated[str, flag("operator.identity")]
LeaderElection = Annotated[bool, flag("operator.leader_election")]
LeaseName = Annotated[str, flag("operator.lease.name")]
LeaseNamespace = Annotated[str, flag("operator.lease.namespace")]
LeaseDuration = Annotated[float, flag("operator.lease.duration_seconds", min=1.0)]
LeaseRenew = Annotated[float, flag("operator.lease.renew_seconds", min=0.5)]
LeaseRetry = Annotated[float, flag("operator.lease.retry_seconds", min=0.1)]
LogLevel = Annotated[str, flag("operator.log_level")]
LogFormat = Annotated[str, flag("operator.log_format")]
Stall = Annotated[float, flag("operator.stall_seconds", min=5.0)]
Journal = Annotated[str, flag("operator.journal")]


def command(
    kubeconfig: Kubeconfig = _USUAL.kubeconfig,
    context: Context = _USUAL.context,
    namespace: Namespace = _USUAL.namespace,
    policy: Policy = _USUAL.policy,
    policy_for: PolicyFor = None,
    placement: Placement = _USUAL.placement,
    migration: Migration = _USUAL.migration,
    cpu_share: CpuShare = _USUAL.cpu_share,
    reservation: Reservation = _USUAL.reservation,
    rate_limit: RateLimit = _USUAL.rate_limit_seconds,
    default_image: DefaultImage = _USUAL.default_image,
    gpu_resource: GpuResource = _USUAL.gpu_resource,
    kubeshare: KubeShare = _USUAL.kubeshare,
    cluster_domain: ClusterDomain = _USUAL.cluster_domain,
    listen: Listen = _USUAL.listen,
    remote_api: RemoteApi = _USUAL.remote_api,
    authenticate: Authenticate = _USUAL.authenticate,
    identity: Identity = _USUAL.identity,
    leader_election: LeaderElection = _USUAL.leader_election,
    lease_name: LeaseName = _USUAL.lease.name,
    lease_namespace: LeaseNamespace = _USUAL.lease.namespace,
    lease_duration: LeaseDuration = _USUAL.lease.duration_seconds,
    lease_renew: LeaseRenew = _USUAL.lease.renew_seconds,
    lease_retry: LeaseRetry = _USUAL.lease.retry_seconds,
    log_level: LogLevel = _USUAL.log_level,
    log_format: LogFormat = _USUAL.log_format,
    stall: Stall = _USUAL.stall_seconds,
    journal: Journal = _USUAL.journal,
) -> int:
    """Schedule the training jobs of a Kubernetes cluster until interrupted; training goes on without it.

    Its only state is the cluster's objects, so it may be killed at any time. Of several replicas the Lease holder acts.

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
        "cpu_share": cpu_share,
        "reservation": reservation,
        "rate_limit_seconds": rate_limit,
        "default_image": default_image,
        "gpu_resource": gpu_resource,
        "kubeshare": kubeshare,
        "cluster_domain": cluster_domain,
        "listen": listen,
        "identity": identity,
        "leader_election": leader_election,
        "lease.name": lease_name,
        "lease.namespace": lease_namespace,
        "journal": journal,
    }
    api = {"remote_api": remote_api, "authenticate": authenticate}
    health = {"log_level": log_level, "log_format": log_format, "stall_seconds": stall}
    times = {"duration_seconds": lease_duration, "renew_seconds": lease_renew, "retry_seconds": lease_retry}
    from sterna.apps.operator import run

    run(
        make_settings(
            OperatorSettings, chosen | api | health | {f"lease.{name}": value for name, value in times.items()}
        )
    )
    return 0
