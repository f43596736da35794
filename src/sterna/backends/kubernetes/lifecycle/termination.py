"""Termination cause of a pod: its own error, or its node, kubelet or the cluster. Pure.

A pod that is rejected or evicted, or whose node is lost, is created again without counting as a failure of the job.
Such a pod has a one-word reason in its status and no exit code.
"""

from __future__ import annotations

from enum import Enum

from sterna.backends.kubernetes.api.job import PodRow
from sterna.control.failures import describe_exit

LOST_CODE = 137
"""Exit code of a container that its runtime lost track of."""

_REJECTIONS = frozenset(
    {
        "AppArmor",
        "HostPort",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "TopologyAffinityError",
        "Unschedulable",
        "UnexpectedAdmissionError",
    }
)
_OUT_OF_PREFIX = "OutOf"
"""`OutOfcpu`, `OutOfmemory`, `OutOfpods`, `OutOfnvidia.com/gpu`."""
_EVICTIONS = frozenset(
    {
        "DeletionByPodGC",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "Evicted",
        "NodeShutdown",
        "Preempted",
        "Preempting",
        "PreemptionByScheduler",
        "Shutdown",
        "Terminated",
        "TerminationByKubelet",
    }
)
_LOSSES = frozenset({"ContainerStatusUnknown", "NodeFailure", "NodeLost", "NodeUnreachable", "Unknown"})


class TerminationCause(Enum):
    """Why a pod failed."""

    REJECTED = "rejected"
    """Rejected by its kubelet before it ran: no capacity, or a node that it may not use."""
    EVICTED = "evicted"
    """Evicted or preempted."""
    LOST = "lost"
    """Its node was lost, so that its end was not observed."""
    ENDED = "ended"
    """Ran and exited with an error."""


def termination_cause(pod: PodRow) -> TerminationCause:
    if pod.reason.startswith(_OUT_OF_PREFIX) and pod.reason != "OutOfMemoryKilled":
        return TerminationCause.REJECTED if pod.exit_code is None else TerminationCause.ENDED
    if pod.reason in _REJECTIONS and pod.exit_code is None:
        return TerminationCause.REJECTED
    if pod.reason in _EVICTIONS:
        return TerminationCause.EVICTED
    if pod.reason in _LOSSES:
        return TerminationCause.LOST
    if pod.reason == "DeadlineExceeded" or pod.exit_code is not None:
        return TerminationCause.ENDED
    return TerminationCause.LOST


def termination_message(pod: PodRow) -> str:
    """Return the beginning of a sentence: `worker-1 ended with exit code 137 (OOMKilled)`."""
    who, cause = f"{pod.type}-{pod.index}", termination_cause(pod)
    if cause is TerminationCause.REJECTED:
        return f"{who} was refused by {pod.node} ({pod.reason})"
    if cause is TerminationCause.EVICTED:
        return f"{who} was evicted from {pod.node} ({pod.reason})"
    if cause is TerminationCause.LOST:
        return f"{who} was lost on {pod.node}: it left no exit record"
    if pod.exit_code is None:
        return f"{who} ended: {pod.reason}"
    if pod.reason in ("", "Error"):
        return f"{who} ended with {describe_exit(pod.exit_code)}"
    return f"{who} ended with exit code {pod.exit_code} ({pod.reason})"
