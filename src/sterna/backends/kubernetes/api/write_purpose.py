"""What a write was for: rides on it and comes back with its answer. Values only."""

from __future__ import annotations

from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import PodRow

FORGOTTEN = "forgotten"
"""What was written down about a move is removed."""


class CreatedPod(NamedTuple):
    job: int
    pod: PodRow
    """As it was counted from the moment the write was sent."""


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


class Told(NamedTuple):
    """A status, or what is remembered of a job."""

    job: int


class Patched(NamedTuple):
    """A change to an object that somebody else carries out."""

    job: int
    what: str


class Bound(NamedTuple):
    job: int
    uid: str
    node: str


class Resized(NamedTuple):
    job: int
    uid: str


class Placed(NamedTuple):
    """Somebody's SharePod."""

    uid: str


class Event(NamedTuple):
    number: int
    """How often it was told, with this time."""
