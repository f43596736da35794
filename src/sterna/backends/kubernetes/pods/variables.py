"""What a replica finds in its environment: who it is, where its peers listen, where its reports go.

Variables that a framework needs to be right (which rank, how many) are ours even if the user set them; all others are
only offered. Ours come first in the list, so that a user's own may refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.gang import GangRanks
from sterna.kinds.parsed_job import ParsedJob

AGENT_FOLDER = "/run/sterna"
TERMINATION_LOG = "/dev/termination-log"
FIRM = frozenset({"TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"})
"""A job that was told another rank than it has cannot train."""

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
    """For the agent."""
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
    """The container with what it lacks."""
    written = container.get("env")
    theirs = [each for each in written if isinstance(each, dict)] if isinstance(written, list) else []
    kept = [each for each in theirs if each.get("name") not in FIRM or each.get("name") not in ours]
    names = {each.get("name") for each in kept}
    added = [{"name": name, "value": value} for name, value in ours.items() if name not in names]
    if has_agent:
        added += [each for each in _DOWNWARD if each["name"] not in names]
        if "STERNA_TERMINATION_LOG" not in names:
            path = container.get("terminationMessagePath") or TERMINATION_LOG
            added.append({"name": "STERNA_TERMINATION_LOG", "value": path})
    return {**container, "env": [*added, *kept]}


def with_mount(container: Mapping[str, Any], volume: str) -> dict[str, Any]:
    """The container with the agent's folder, unless something else is there."""
    written = container.get("volumeMounts")
    mounts: Sequence[Any] = written if isinstance(written, list) else []
    if any(isinstance(each, dict) and each.get("mountPath") == AGENT_FOLDER for each in mounts):
        return dict(container)
    return {**container, "volumeMounts": [*mounts, {"name": volume, "mountPath": AGENT_FOLDER}]}
