"""`sterna operator`: run the scheduler of a Kubernetes cluster, in the cluster or beside it."""

from __future__ import annotations

from sterna.cli.parsing.flags import expand_settings
from sterna.settings import OperatorSettings

_MINIMUMS = {
    "rate_limit_seconds": 0.0,
    "lease.duration_seconds": 1.0,
    "lease.renew_seconds": 0.5,
    "lease.retry_seconds": 0.1,
    "stall_seconds": 5.0,
}


@expand_settings(OperatorSettings, "operator", _MINIMUMS, lists=("policy_for",))
def command(settings: OperatorSettings) -> int:
    """Schedule the training jobs of a Kubernetes cluster until interrupted; training continues without the operator.

    All state is in the cluster: the operator may be killed at any time, and another one takes over. Of several
    replicas, the one that holds the Lease acts.

    \b
    Examples:
      sterna operator
      sterna operator --kubeconfig ~/.kube/config --context lab --policy elastic-srjf
      sterna operator --namespace training --policy dragon --migration balance --no-leader-election
      sterna operator --policy afs-l --policy-for nvidia-a100=srjf --policy-for t4=tiresias:threshold=600
    """
    from sterna.apps.operator import run

    run(settings)
    return 0
