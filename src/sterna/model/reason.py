"""Reasons: why a job waits or changed, as a code with numbers. The only place that words them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from sterna.model.formatting import plural

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Code(Enum):
    """One sentence per code. `{n}` and `{m}` are the numbers of the reason, `{who}` other jobs; nouns agree with the
    numbers. `{because}` lists what rules the nodes out, `{full}` what is used up on them."""

    STARTED = "started with {n} {workers}"
    GREW = "grew from {m} to {n} {workers}: devices were free"
    SHRANK = "shrank from {m} to {n} {workers} to make room for {who}"
    SHRANK_BY_RULE = "shrank from {m} to {n} {workers}, the share that the policy gives it now"
    STOPPED = "stopped with {n} {workers} to make room for {who}, which {goes} first under this policy"
    STOPPED_BY_RULE = "stopped with {n} {workers}: the policy gives it nothing now"
    MOVED = "moved {n} {workers} to other nodes"
    MOVED_FOR = "moved {n} {workers} to other nodes, which helps {who} most"
    SHARED = "gets {times} equal share of the CPU of its node"
    NEEDS_DEVICES = "waits: {n} more {units_n} needed ({m} free)"
    NEEDS_ROOM = "waits: {m} {units_m} free, but not where its {n} {workers} could be placed{together}{full}"
    ROOM_FOR_SOME = "waits: there is room for {m} of its {n} {workers}{full_beside}"
    SERVERS_NEED_ROOM = "waits: {m} {units_m} free, but not where its {n} parameter {servers} could be placed{full}"
    BEHIND = "waits: jobs that go first under this policy hold or get the {n} {units_n} it needs"
    TOO_LARGE = "cannot run: it needs {n} {workers} at once and the whole cluster has room for {m}"
    NO_NODE = "cannot run: no node can hold even one of its workers ({n} {units_n} each){because}"
    NO_SERVERS = "cannot run: no nodes can hold its {n} parameter {servers}{because}"
    NOT_BESIDE_SERVERS = (
        "cannot run: it needs {n} {workers} at once and the whole cluster has room for {m} beside its parameter servers"
    )


class Bar(Enum):
    """Obstacles that keep a worker off a node, in the order of the checks. `{have}` and `{need}` are formatted amounts,
    `{what}` is a label or a taint; verbs agree with the number of nodes."""

    LABEL = "{lack} the label {what}"
    TYPE = "{take} only jobs that ask for the GPU type {what}"
    TAINT = "{carry} the taint {what}, which it does not tolerate"
    DEVICES = "{have_verb} {have}{free} of the {need} {devices} it needs"
    CPUS = "{have_verb} {have}{free} of the {need} {cpus} it needs"
    MEMORY = "{have_verb} {have}{free} of the {need} of memory it needs"
    CLOSED = "{take} no new workers"


class Obstacle(NamedTuple):
    """An obstacle and the number of nodes that it rules out."""

    bar: Bar
    nodes: int
    what: str = ""
    have: float = 0
    """Largest amount on any of these nodes: devices, CPUs or bytes."""
    need: float = 0


class Reason(NamedTuple):
    """Reason for the state of one job."""

    row: int
    job: str
    code: Code
    n: float = 0
    m: float = 0
    who: tuple[str, ...] = ()
    """Other jobs, the most important first."""
    unit: str = "device"
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def sentence(self) -> str:
        return _sentence(*self[2:])


@lru_cache(maxsize=256)
def _sentence(code: Code, n: float, m: float, who: tuple[str, ...], unit: str, obstacles: tuple[Obstacle, ...]) -> str:
    """Format a sentence. Cached: thousands of jobs start or wait for the same reason."""
    text = code.value.format(
        n=f"{n:g}",
        m=f"{m:g}",
        who=_join_names(who),
        goes="go" if len(who) > 1 else "goes",
        workers=plural(n, "worker"),
        servers=plural(n, "server"),
        times="an" if n == 1 else f"{n:g} times an",
        units_n=plural(n, unit),
        units_m=plural(m, unit) + (" is" if m == 1 else " are"),
        together="" if n == 1 else " together",
        because=f": {_list_obstacles(obstacles)}" if obstacles else "",
        full=f": {_list_obstacles(obstacles, ' free')}" if obstacles else "",
        full_beside=f": beside {'it' if m == 1 else 'them'}, {_list_obstacles(obstacles, ' free')}"
        if obstacles
        else "",
    )
    return f"{text}."


def _join_names(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a and 2 others`."""
    if len(names) > 2:
        return f"{names[0]} and {len(names) - 1} others"
    return " and ".join(names) or "another job"


def _list_obstacles(obstacles: Sequence[Obstacle], free: str = "") -> str:
    """Return `3 of 4 nodes lack the label gpu=h100; the other has 2 of the 4 devices it needs`. `free` is put after an
    amount that other jobs reduce."""
    total = sum(obstacle.nodes for obstacle in obstacles)
    left, parts = total, []
    for obstacle in obstacles:
        count, is_first, is_last = obstacle.nodes, left == total, left == obstacle.nodes
        if is_first and is_last:
            whom = "the only node" if count == 1 else "both nodes" if count == 2 else f"all {count:,} nodes"
        elif is_first:
            whom = f"{count:,} of {total:,} nodes"
        elif is_last:
            whom = "the other" if count == 1 else f"the other {count:,}"
        else:
            whom = f"{count:,} more"
        parts.append(f"{whom} {_describe_obstacle(obstacle, free)}")
        left -= count
    return "; ".join(parts)


def _describe_obstacle(obstacle: Obstacle, free: str) -> str:
    is_one, is_memory = obstacle.nodes == 1, obstacle.bar is Bar.MEMORY
    have, need = (format_bytes(each) if is_memory else f"{each:g}" for each in (obstacle.have, obstacle.need))
    return obstacle.bar.value.format(
        take="takes" if is_one else "take",
        lack="lacks" if is_one else "lack",
        carry="carries" if is_one else "carry",
        have_verb="has" if is_one else "have at most",
        what=obstacle.what,
        have=have,
        free=free,
        need=need,
        devices=plural(obstacle.need, "device"),
        cpus=plural(obstacle.need, "CPU"),
    )


def format_bytes(count: float) -> str:
    """Format bytes as `20 GiB`."""
    step = 0
    while count >= 1024 and step < len(_UNITS) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.4g} {_UNITS[step]}"
