"""One attempt of a job as a training framework sees it: who takes part, under which rank, at which address.

Each backend builds a `Gang` from its own records; the modules beside this one turn it into variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

UNRANKED = frozenset({"ps", "evaluator", "launcher"})
"""Replica types that take no part in the ranks of a training."""
LEADERS = ("chief", "master")
"""Types of the replica that the others call, where a job has one."""


class GangMember(NamedTuple):
    """One replica of a gang, by the type and number under which its framework knows it."""

    type: str
    number: int
    rank: int
    is_host: bool
    """The rendezvous of elastic agents runs in this replica."""


@dataclass(frozen=True)
class Gang:
    """All replicas of one attempt."""

    rendezvous_id: str
    """Unique for every attempt of every job."""
    size: int
    """Number of ranked replicas."""
    host: str
    """Host of the replica that the others call."""
    port: int
    minimum: int
    maximum: int
    addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """`host:port` of all replicas that peers may ever call, by type; evaluators are not among them."""
    chiefs: int = 0
    """Chiefs that run inside the parameter servers; they are the first workers of the cluster."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the manifest asks for; they go before computed ones."""
    own_host: str = ""
    """Address under which every replica announces itself; empty: its framework finds out."""
    folder: str = ""
    """Folder with the attempt's files (`Kind.attempt_files`); empty: there are none."""


def rank_order(replica: tuple[str, int]) -> tuple[bool, bool, str, int]:
    """Sort key: chief or master first, then workers, then types without a rank."""
    type_, number = replica
    return type_ in UNRANKED, type_ not in LEADERS, type_, number
