"""Environment of a replica's containers: identity, addresses of peers, folder for reports.

Variables that must be right for a framework to work (rank, size, addresses) override those of the template; the others
do not. Sterna's come first in the list, so that variables of the template may refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.gang import GangRanks
from sterna.kinds.parsed_job import ParsedJob

AGENT_FOLDER = "/run/sterna"
TERMINATION_LOG = "/dev/termination-log"
OVERRIDING = frozenset({"TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"})
"""Variables that override those of the template: with a wrong rank a job cannot train."""

Variable = dict[str, Any]


def _field(name: str, path: str) -> Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


_DOWNWARD = (
    _field("POD_NAME", "metadata.name"),
    _field("POD_IP", "status.podIP"),
    _field("NODE_NAME", "spec.nodeName"),
    _field("NODE_IP", "status.hostIP"),
)


def identity(
    parsed_job: ParsedJob, replica: ReplicaAssignment, gang: GangRanks, attempt: int, generation: int
) -> dict[str, str]:
    """Variables that the agent reads."""
    return {
        "STERNA_DIR": AGENT_FOLDER,
        "STERNA_JOB": parsed_job.ref.name,
        "STERNA_TYPE": replica.type,
        "STERNA_INDEX": str(replica.ordinal),
        "STERNA_RANK": str(gang.rank(replica)),
        "STERNA_SIZE": str(gang.size),
        "STERNA_ATTEMPT": str(attempt),
        "STERNA_GENERATION": str(generation),
    }


def with_variables(container: Mapping[str, Any], ours: Mapping[str, str], has_agent: bool) -> dict[str, Any]:
    """The container with the variables that it lacks."""
    written = container.get("env")
    theirs = [each for each in written if isinstance(each, dict)] if isinstance(written, list) else []
    kept = [each for each in theirs if each.get("name") not in OVERRIDING or each.get("name") not in ours]
    names = {each.get("name") for each in kept}
    added = [{"name": name, "value": value} for name, value in ours.items() if name not in names]
    if has_agent:
        added += [each for each in _DOWNWARD if each["name"] not in names]
        if "STERNA_TERMINATION_LOG" not in names:
            path = container.get("terminationMessagePath") or TERMINATION_LOG
            added.append({"name": "STERNA_TERMINATION_LOG", "value": path})
    return {**container, "env": [*added, *kept]}


def with_mount(container: Mapping[str, Any], volume: str) -> dict[str, Any]:
    """The container with the agent's folder mounted, unless its path is taken."""
    written = container.get("volumeMounts")
    mounts: Sequence[Any] = written if isinstance(written, list) else []
    if any(isinstance(each, dict) and each.get("mountPath") == AGENT_FOLDER for each in mounts):
        return dict(container)
    return {**container, "volumeMounts": [*mounts, {"name": volume, "mountPath": AGENT_FOLDER}]}
