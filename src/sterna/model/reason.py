"""Why a job waits or changed: a code and the number that is missing. Worded here and nowhere else."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Code(Enum):
    """One code, one sentence. `{n}` is the number that the reason carries, `{m}` a second one, `{who}` another job;
    what is counted agrees with them."""

    STARTED = "started with {n} {workers}"
    GREW = "grew from {m} to {n} {workers}: devices were free"
    SHRANK = "shrank from {m} to {n} {workers} to make room for {who}"
    SHRANK_BY_RULE = "shrank from {m} to {n} {workers}, the share that the policy gives it now"
    STOPPED = "stopped with {n} {workers} to make room for {who}, which goes first under this policy"
    STOPPED_BY_RULE = "stopped with {n} {workers}: the policy gives it nothing now"
    MOVED = "moved {n} {workers} to other nodes"
    NEEDS_DEVICES = "waits: {n} more {units_n} needed ({m} free)"
    NEEDS_ROOM = "waits: {m} {units_m} free, but not where its {n} {workers} could be placed together"
    BEHIND = "waits: jobs that go first under this policy hold or get the {n} {units_n} it needs"
    TOO_LARGE = "cannot run: it needs {n} {workers} at once and the whole cluster has room for {m}"
    NO_NODE = (
        "cannot run: no node can hold even one of its workers ({n} {units_n} each, with its CPU, memory and labels)"
    )


class Reason(NamedTuple):
    """Why one job waits or changed."""

    row: int
    job: str
    code: Code
    n: float = 0
    m: float = 0
    who: str = ""
    unit: str = "device"

    @property
    def sentence(self) -> str:
        text = self.code.value.format(
            n=f"{self.n:g}",
            m=f"{self.m:g}",
            who=self.who or "another job",
            workers=_counted(self.n, "worker"),
            units_n=_counted(self.n, self.unit),
            units_m=_counted(self.m, self.unit) + (" is" if self.m == 1 else " are"),
        )
        return f"{text}."


def _counted(count: float, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
