"""Serving pods, which answer requests of users. Sterna makes room for them; another scheduler binds them."""

from __future__ import annotations

from typing import NamedTuple

from sterna.model.cluster import Shape


class ServingPod(NamedTuple):
    """A pending serving pod. A bound one needs no reservation: its resources are not free any more."""

    name: str
    shape: Shape
    """Resource requests, as those of one worker."""
    since: float
    """Time at which it became pending, in seconds."""
    rank: int = 0
    """Lower goes first; pods of one rank go by age."""
