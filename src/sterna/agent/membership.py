"""Members of a training group: a file that the scheduler replaces on each change, read again when it has changed.

The file holds the desired members; `elastic` finds out which of them run. A missing, partial or invalid file leaves the
last known members in place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, order=True)
class Member:
    """One of the processes that train together."""

    rank: int
    attempt: int
    index: int
    address: str
    """`host:port` at which other members connect."""

    @property
    def identity(self) -> tuple[int, int]:
        """Key that stays the same while ranks change."""
        return self.attempt, self.index


class World(NamedTuple):
    """Position of a process in its training group."""

    rank: int
    """-1: not a member."""
    size: int
    generation: int
    """Number of membership changes so far."""
    members: tuple[Member, ...] = ()
    """In rank order; empty for jobs that are not resized in place."""


class Membership:
    """Reader of the membership file; an unchanged file costs one `stat`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.path = environment.get("STERNA_WORLD", "")
        self.identity = (_number(environment, "STERNA_ATTEMPT", 1), _number(environment, "STERNA_INDEX", 0))
        rank = _number(environment, "STERNA_RANK", _number(environment, "RANK", 0))
        size = _number(environment, "STERNA_SIZE", _number(environment, "WORLD_SIZE", 1))
        self._world = World(rank, size, _number(environment, "STERNA_GENERATION", 0))
        self._seen: tuple[int, int, int] | None = None
        self.in_force: int | None = None
        """Generation that currently trains; set by `elastic`, None without it."""

    @property
    def generation(self) -> int:
        """Generation written into reports."""
        return self._world.generation if self.in_force is None else self.in_force

    def world(self) -> World:
        """Return the content of the file, or the last valid one."""
        if not self.path:
            return self._world
        try:
            found = os.stat(self.path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                with open(self.path, encoding="utf-8") as file:
                    self._world = self._read(json.load(file))
                self._seen = seen
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return self._world
        return self._world

    def _read(self, document: Mapping[str, object]) -> World:
        entries = document["members"]
        if not isinstance(entries, list):
            raise TypeError(entries)
        members = [_member(each) for each in entries]
        ranks = [each.rank for each in members if each.identity == self.identity]
        generation = int(str(document["generation"]))
        return World(ranks[0] if ranks else -1, len(members), generation, tuple(sorted(members)))


def _member(entry: Mapping[str, Any]) -> Member:
    return Member(int(entry["rank"]), int(entry["attempt"]), int(entry["index"]), str(entry["address"]))


def _number(environment: Mapping[str, str], name: str, otherwise: int) -> int:
    try:
        return int(environment.get(name, ""))
    except ValueError:
        return otherwise
