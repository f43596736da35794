"""Record of the move of a plain pod, which is deleted and created again under its name on another node.

No controller would create it again, so the record, a ConfigMap in its namespace, holds the whole pod and its target
node and is written before the pod is deleted. An operator that finds a record without a pod finishes the move; one that
finds the pod on the target node removes the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import ATTEMPT_LABEL, GROUP, JOB_LABEL, MIGRATE_TO
from sterna.kinds.parsing.fields import decode_fields

MOVE_LABEL = f"{GROUP}/move"
"""Label that marks a ConfigMap as a record."""
_POD, _NODE, _FROM, _ATTEMPT, _UID = "pod.json", "node", "from", "attempt", "uid"
_SERVER_SIDE = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"}
)
_TOKEN = "kube-api-access-"
_LONGEST_NAME = 253


class MoveRecord(NamedTuple):
    """Contents of a record."""

    namespace: str
    name: str
    """Name of the pod."""
    source: str
    node: str
    attempt: int
    pod: dict[str, Any]
    """The pod to create."""
    uid: str = ""
    """Uid of the pod to delete; empty in older records: any pod of that name."""

    def is_about(self, uid: str, attempt: str) -> bool:
        """True for the pod that is deleted and for the one that replaces it, by uid and attempt label."""
        return self.uid in ("", uid) or attempt == str(self.attempt)


def record_name(pod: str) -> str:
    return f"sterna-move-{pod}"[:_LONGEST_NAME]


def move_record(pod: Mapping[str, Any], node: str, attempt: int) -> dict[str, Any]:
    """Build the record of a move; `pod` is the whole object as the server returned it."""
    whole = decode_fields(dict(pod), dict[str, Any], "the pod")
    moved = pod_on_node(whole, node, attempt)
    metadata, spec, uid = moved["metadata"], whole.get("spec"), _mapping(whole.get("metadata")).get("uid", "")
    source = spec.get("nodeName", "") if isinstance(spec, dict) else ""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record_name(str(metadata.get("name", ""))),
            "namespace": metadata.get("namespace", ""),
            "labels": {MOVE_LABEL: "true"},
        },
        "data": {
            _POD: msgspec.json.encode(moved).decode(),
            _NODE: node,
            _FROM: str(source),
            _ATTEMPT: str(attempt),
            _UID: str(uid),
        },
    }


def redirect_patch(move: MoveRecord, node: str, uid: str) -> dict[str, Any]:
    """A merge patch of a record whose pod gets another target node, or was replaced by a pod of another uid."""
    pod = pod_on_node(move.pod, node, move.attempt)
    return {"data": {_NODE: node, _POD: msgspec.json.encode(pod).decode(), _UID: uid}}


class _Record(msgspec.Struct):
    data: dict[str, str] = {}


def read_record(record: Mapping[str, Any]) -> MoveRecord:
    """Parse a record; `UserError` if it is malformed."""
    data = decode_fields(dict(record), _Record, "the record of a move").data
    pod = decode_fields(data.get(_POD, "").encode(), dict[str, Any], "the pod in the record of a move")
    metadata = pod.get("metadata")
    attempt = data.get(_ATTEMPT, "")
    if not isinstance(metadata, dict) or not data.get(_NODE) or not attempt.isdigit():
        raise UserError("A record of a move does not say what moves where; delete it, and create the pod again.")
    namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    return MoveRecord(namespace, name, data.get(_FROM, ""), data[_NODE], int(attempt), pod, data.get(_UID, ""))


def pod_on_node(pod: Mapping[str, Any], node: str, attempt: int) -> dict[str, Any]:
    """The pod as its user wrote it, bound to another node: without fields that the server and its plugins set, and
    without the annotation that requests a move, which would be processed a second time."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_SIDE}
    if "annotations" in kept:
        kept["annotations"] = {key: value for key, value in _mapping(kept["annotations"]).items() if key != MIGRATE_TO}
    labels = {**_mapping(metadata.get("labels")), ATTEMPT_LABEL: str(attempt)}
    labels.setdefault(JOB_LABEL, str(metadata.get("name", "")))
    tokens = {name for name in map(_name, _list(spec.get("volumes"))) if name.startswith(_TOKEN)}
    moved = {**spec, "nodeName": node}
    for key in ("containers", "initContainers"):
        if key in spec:
            moved[key] = [_without_mounts(each, tokens) for each in _list(spec[key])]
    if "volumes" in spec:
        moved["volumes"] = [each for each in _list(spec["volumes"]) if _name(each) not in tokens]
    moved.pop("ephemeralContainers", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, "labels": labels}, "spec": moved}


def _without_mounts(container: Any, volumes: set[str]) -> Any:
    if not isinstance(container, dict) or "volumeMounts" not in container:
        return container
    mounts = [each for each in _list(container["volumeMounts"]) if _name(each) not in volumes]
    return {**container, "volumeMounts": mounts}


def _name(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
