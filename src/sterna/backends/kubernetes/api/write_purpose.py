"""Purpose of a write: attached to it as `Write.tag` and returned with its result."""

from __future__ import annotations

from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import PodRow

RECORD_DELETED = "record deleted"
"""`PatchedObject.what` of the deletion of a move record."""


class CreatedPod(NamedTuple):
    job: int
    pod: PodRow
    """The row that stands for the pod since the write was sent."""


class DeletedPod(NamedTuple):
    job: int
    uid: str


class CreatedService(NamedTuple):
    job: int
    replica: Key


class DeletedService(NamedTuple):
    job: int
    replica: Key


class DeletedJob(NamedTuple):
    job: int


class WroteStatus(NamedTuple):
    """Write of a status or of status annotations."""

    job: int


class PatchedObject(NamedTuple):
    """Patch of the job's object, or write of its move record."""

    job: int
    what: str


class BoundPod(NamedTuple):
    job: int
    uid: str
    node: str


class ResizedPod(NamedTuple):
    job: int
    uid: str


class PlacedSharePod(NamedTuple):
    """Placement of an urgent SharePod of another owner."""

    uid: str


class RecordedEvent(NamedTuple):
    occurrences: int
    """Number of occurrences, including this one."""
