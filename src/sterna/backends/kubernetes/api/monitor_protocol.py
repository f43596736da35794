"""What a monitor sends to the operator and what it gets back. Values only, so that both sides agree on one page."""

from __future__ import annotations

import msgspec

from sterna.progress.report import Report

AUDIENCE = "sterna"
"""For whom a monitor's token is made; the API server refuses it, and we refuse tokens made for the API server."""
MOST_BYTES = 1 << 20
"""Of one batch; a monitor that has more to say sends several."""


class PodReports(msgspec.Struct, omit_defaults=True):
    """What one pod has told that was not sent before."""

    uid: str
    namespace: str
    name: str
    reports: list[Report]
    """Oldest first."""


class Batch(msgspec.Struct, omit_defaults=True):
    """News of a node."""

    node: str
    sent_at: float
    """By the node's clock, so that its times can be told on the operator's."""
    memory: str = ""
    """The operator's, as it last named it; empty: it has not been met yet."""
    pods: list[PodReports] = []


class Receipt(msgspec.Struct):
    """The answer to a batch: taken, or refused (409) because it was meant for another memory."""

    memory: str
    """Names what the operator has heard since it came up. A monitor that meets another name tells all it remembers,
    the oldest first."""


class MoveRequest(msgspec.Struct, omit_defaults=True):
    """That a pod should leave its node, in container-migration's words."""

    node: str
    pod: str
    namespace: str = ""
    """Which its requests do not say; empty: wherever a pod of that name is on that node."""
