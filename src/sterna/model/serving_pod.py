"""Serving pods: what answers users while others train. Sterna makes room for them; their own scheduler binds them."""

from __future__ import annotations

from typing import NamedTuple

from sterna.model.cluster import Shape


class ServingPod(NamedTuple):
    """A serving pod that is not bound yet. One that is bound makes no claim: what it uses is simply not free."""

    name: str
    shape: Shape
    """What it needs, as of one worker."""
    since: float
    """Since when it has been pending, in seconds."""
    rank: int = 0
    """Lower ones go first, and of one rank the oldest."""
