"""Why a pod ended: by its own doing, or because its node, its kubelet or somebody else ended it. Pure.

A pod that a kubelet refuses or evicts, or whose node is lost, did nothing wrong: it is made again and the job's count
of failures stays as it is. What is known of such a pod is one word in its status and no exit code.
"""

from __future__ import annotations

from enum import Enum

from sterna.backends.kubernetes.api.job import PodRow

LOST_CODE = 137
"""What a container ends with whose runtime lost track of it."""

_REFUSALS = frozenset(
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
_REFUSED_FOR_ROOM = "OutOf"
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
    """What a failed pod suffered from."""

    REFUSED = "refused"
    """Its kubelet did not take it: no room, or another node than it may have. It never ran."""
    EVICTED = "evicted"
    """Put off its node for the sake of others."""
    LOST = "lost"
    """Nobody saw how it ended."""
    ENDED = "ended"
    """It ran, and ended with an error of its own."""


def termination_cause(pod: PodRow) -> TerminationCause:
    """Of a pod that failed."""
    if pod.reason.startswith(_REFUSED_FOR_ROOM) and pod.reason != "OutOfMemoryKilled":
        return TerminationCause.REFUSED if pod.exit_code is None else TerminationCause.ENDED
    if pod.reason in _REFUSALS and pod.exit_code is None:
        return TerminationCause.REFUSED
    if pod.reason in _EVICTIONS:
        return TerminationCause.EVICTED
    if pod.reason in _LOSSES:
        return TerminationCause.LOST
    if pod.reason == "DeadlineExceeded" or pod.exit_code is not None:
        return TerminationCause.ENDED
    return TerminationCause.LOST


def termination_message(pod: PodRow) -> str:
    """`worker-1 ended with exit code 137 (OOMKilled)`: the beginning of a sentence."""
    who, ailment = f"{pod.type}-{pod.index}", termination_cause(pod)
    if ailment is TerminationCause.REFUSED:
        return f"{who} was refused by {pod.node} ({pod.reason})"
    if ailment is TerminationCause.EVICTED:
        return f"{who} was evicted from {pod.node} ({pod.reason})"
    if ailment is TerminationCause.LOST:
        return f"{who} was lost on {pod.node}: nobody saw how it ended"
    if pod.exit_code is None:
        return f"{who} ended: {pod.reason}"
    said = f" ({pod.reason})" if pod.reason not in ("", "Error") else ""
    return f"{who} ended with exit code {pod.exit_code}{said}"
