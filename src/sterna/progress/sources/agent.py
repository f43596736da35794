"""The agent: lines that `sterna.agent` appends to a file in the replica's folder. Read for every job."""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.progress.names import finite, whole
from sterna.progress.registry import register
from sterna.progress.report import Positions, SourceReport, position_entry
from sterna.progress.source_kind import SourceFiles, SourceKind
from sterna.progress.tail import Tail

AGENT_FILE, REGISTERED_FILE = "progress.jsonl", "registered"


class _Line(msgspec.Struct):
    """One line of the agent's file."""

    t: float = 0.0
    step: float | None = None
    total: float | None = None
    metrics: dict[str, float | None] = {}
    generation: int = 0
    saved: bool = False
    cpu: float = 0.0
    """CPU seconds that the process has used."""


_DECODE = msgspec.json.Decoder(_Line).decode


class AgentSource:
    """Follows the agent's file."""

    def __init__(self, files: SourceFiles) -> None:
        position = files.positions.get("agent")
        self._tail = Tail(files.folder / AGENT_FILE, position, is_timed=False, inside=files.inside)
        self._registered = files.folder / REGISTERED_FILE
        self.has_reported = position is not None and position.offset > 0
        self.has_registered = False
        """True once the process has registered a function that saves when it is asked to stop."""

    def poll(self, is_last: bool) -> list[SourceReport]:
        found = []
        for line in self._tail.lines(is_last):
            try:
                read = _DECODE(line)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue  # torn by a full disk
            metrics = {name: None if value is None else finite(value) for name, value in read.metrics.items()}
            step, total = whole(read.step), whole(read.total)
            found.append(SourceReport(read.t, step, total, metrics, read.generation, "agent", read.saved, read.cpu))
        self.has_reported = self.has_reported or bool(found)
        self.has_registered = self.has_registered or self._registered.exists()
        return found

    def positions(self) -> Positions:
        return position_entry("agent", self._tail.position)

    def close(self) -> None:
        self._tail.close()


def _parse(value: Any) -> Any:
    raise ValueError("no parameters: the agent reports without being declared")


SOURCE = register(
    SourceKind(
        name="agent",
        summary="`sterna.agent.report()` and the callbacks for Hugging Face, Lightning and Keras",
        parse=_parse,
        open=lambda parameters, files: AgentSource(files),
        is_always_on=True,
    )
)
