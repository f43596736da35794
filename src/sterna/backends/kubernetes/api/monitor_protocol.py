"""Messages between monitor and operator, shared by both sides."""

from __future__ import annotations

import msgspec

from sterna.progress.report import SourceReport

AUDIENCE = "sterna"
"""Audience of a monitor's token. The API server rejects such a token, and the operator rejects any other."""
MOST_BYTES = 1 << 20
"""Upper bound on the size of one batch; a monitor splits larger ones."""


class PodReports(msgspec.Struct, omit_defaults=True):
    """New reports of one pod."""

    uid: str
    namespace: str
    name: str
    reports: list[SourceReport]
    """Oldest first."""
    saves_on_request: bool = False
    """A process of the pod has registered a function that saves when it is asked to stop."""


class Batch(msgspec.Struct, omit_defaults=True):
    """Reports of all pods of a node."""

    node: str
    sent_at: float
    """Node time, for the conversion of its times to the operator's clock."""
    memory: str = ""
    """Session id of the operator as last received; empty before the first response."""
    pods: list[PodReports] = []


class Receipt(msgspec.Struct):
    """Response to a batch: accepted, or rejected (409) because it has another session id."""

    memory: str
    """Session id of the operator process. A monitor that receives a new one sends all its reports again, oldest
    first."""


class PodMoveRequest(msgspec.Struct, omit_defaults=True):
    """Request that a pod leaves its node, in container-migration's format."""

    node: str
    pod: str
    namespace: str = ""
    """Namespace of the pod; empty for any, as in container-migration's requests."""
