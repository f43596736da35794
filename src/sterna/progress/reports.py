"""How far a replica is: whatever it writes, polled and turned into reports of one shape.

One reader for each replica that runs. It looks at what the agent appends, at the file of its output, and at what the
job declared (`ProgressSpec`): a CSV file, a folder of TensorBoard's. A look that finds nothing costs microseconds, so a
loop may look at hundreds of replicas several times a second. It never raises for what a job has written, never waits,
and keeps nothing but its place in the files; what to make of the reports is for others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from sterna.errors import UserError
from sterna.model.job import ProgressSpec
from sterna.progress.csv_rows import CsvReader
from sterna.progress.events import EventFolder
from sterna.progress.lines import LineReader, is_telling
from sterna.progress.names import Counted, finite, whole
from sterna.progress.tail import Position, Tail

AGENT_FILE = "progress.jsonl"
LOG_FILE = "out.log"

LOG_SECONDS = 1.0
"""How often output is looked at."""
LINES_PER_SECOND = 20
"""Of a flood of lines so many are read."""

Positions = dict[str, Position]


class Report(msgspec.Struct, frozen=True):
    """One line of progress."""

    at: float
    """Seconds since 1970."""
    step: int | None
    """Steps done."""
    total: int | None
    metrics: dict[str, float | None]
    """None: the value was no number (NaN, infinite)."""
    generation: int = 0
    """Of the membership, for jobs that resize while they run; 0 where that is not known."""
    source: str = "agent"
    """`agent`, `stdout`, `csv` or `tensorboard`."""
    saved: bool = False
    """The job says that it has a complete checkpoint of this step."""
    cpu_seconds: float = 0.0
    """That the reporting process had used by then; 0 where it does not say."""


class Source(Protocol):
    """One of the places where progress can be found."""

    def poll(self, is_last: bool) -> list[Report]: ...

    def positions(self) -> Positions: ...

    def close(self) -> None: ...


class Output(Source, Protocol):
    """What a replica prints, read line by line."""

    @property
    def notices(self) -> list[str]: ...


class ProgressReader:
    """Everything that one replica tells of its progress."""

    def __init__(
        self,
        folder: Path,
        spec: ProgressSpec | None = None,
        working_dir: Path | None = None,
        positions: Mapping[str, Position] | None = None,
        clock: Callable[[], float] = time.time,
        output: Output | None = None,
        inside: Mapping[str, Path] | None = None,
    ) -> None:
        """`output`: where its output is found, if it is not a file in its folder. `inside`: by source (`agent`, `csv`,
        `tensorboard`), a folder that links may not lead out of."""
        spec = spec or ProgressSpec()
        places = dict(positions or {})
        assignment = working_dir or folder
        limits = inside or {}
        self._total = spec.total or None
        self._agent = _AgentSource(folder / AGENT_FILE, places.get("agent"), limits.get("agent", ""))
        self._log: Output = output or _LogSource(folder / LOG_FILE, spec, places.get("stdout"), clock)
        self._others: list[Source] = []
        if spec.csv:
            self._others.append(_CsvSource(assignment / spec.csv, places.get("csv"), clock, limits.get("csv", "")))
        if spec.tensorboard:
            self._others.append(_EventSource(assignment / spec.tensorboard, places, limits.get("tensorboard", "")))
        self._reads_log = bool(spec.stdout) or not self._others
        self._may_drop_log = not spec.stdout

    def poll(self, is_last: bool = False) -> list[Report]:
        """What is new since the last look, source by source. `is_last`: the replica has ended, so a line that was
        never ended counts too."""
        found = self._agent.poll(is_last)
        if self._reads_log:
            if self._may_drop_log and self._agent.has_reported:
                # What a script prints beside its reports would count every step twice.
                self._reads_log = False
                self._log.close()
            else:
                found += self._log.poll(is_last)
        for source in self._others:
            found += source.poll(is_last)
        if self._total is not None:
            found = [each if each.total is not None else _with_total(each, self._total) for each in found]
        return found

    @property
    def positions(self) -> Positions:
        """Where to go on: give it to the next reader of the same replica."""
        found = self._agent.positions() | self._log.positions()
        for source in self._others:
            found |= source.positions()
        return found

    @property
    def notices(self) -> list[str]:
        """What a user should know of how its output is read."""
        return self._log.notices

    def close(self) -> None:
        sources: list[Source] = [self._agent, self._log, *self._others]
        for source in sources:
            source.close()


def _with_total(report: Report, total: int) -> Report:
    return msgspec.structs.replace(report, total=total)


class _Line(msgspec.Struct):
    """What the agent writes."""

    t: float = 0.0
    step: float | None = None
    total: float | None = None
    metrics: dict[str, float | None] = {}
    generation: int = 0
    saved: bool = False
    cpu: float = 0.0
    """CPU seconds of the process so far."""


_DECODE = msgspec.json.Decoder(_Line).decode


class _AgentSource:
    """Lines that `sterna.agent` appends."""

    def __init__(self, path: Path, position: Position | None, inside: Path | str = "") -> None:
        self._tail = Tail(path, position, is_timed=False, inside=inside)
        self.has_reported = position is not None and position.offset > 0

    def poll(self, is_last: bool) -> list[Report]:
        lines = self._tail.lines(is_last)
        if not lines:
            return []
        found = []
        for line in lines:
            try:
                said = _DECODE(line)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue  # torn by a full disk
            metrics = {name: None if value is None else finite(value) for name, value in said.metrics.items()}
            step, total = whole(said.step), whole(said.total)
            found.append(Report(said.t, step, total, metrics, said.generation, "agent", said.saved, said.cpu))
        self.has_reported = self.has_reported or bool(found)
        return found

    def positions(self) -> Positions:
        return _named("agent", self._tail.position)

    def close(self) -> None:
        self._tail.close()


class _LogSource:
    """What the replica prints. Looked at once a second; of a flood of lines some are read, spread over all of it."""

    def __init__(self, path: Path, spec: ProgressSpec, position: Position | None, clock: Callable[[], float]) -> None:
        self._tail = Tail(path, position, is_log=True)
        self._reader = line_reader(spec.stdout)
        self._clock = clock
        self._look_at = 0.0

    @property
    def notices(self) -> list[str]:
        return self._reader.notices

    def poll(self, is_last: bool) -> list[Report]:
        now = time.monotonic()
        if now < self._look_at and not is_last:
            return []
        self._look_at = now + LOG_SECONDS
        before = self._tail.previous_at
        lines = self._tail.lines(is_last)
        if not lines:
            return []
        span_seconds = self._tail.changed_at - before if before else 1.0
        lines = spread(lines, int(min(max(span_seconds, 1.0), 100.0) * LINES_PER_SECOND))
        said = [found.said if found else None for found in map(self._reader.read, lines)]
        return list(_timed(said, before, self._tail.changed_at, self._clock(), "stdout"))

    def positions(self) -> Positions:
        return _named("stdout", self._tail.position)

    def close(self) -> None:
        self._tail.close()


def line_reader(patterns: tuple[str, ...]) -> LineReader:
    """Patterns are checked when a job is submitted; one that slipped through must not stop those who watch it."""
    try:
        return LineReader(patterns)
    except UserError as error:
        reader = LineReader()
        reader.notices.append(f"{error} Until then the built-in patterns are used.")
        return reader


def spread(lines: list[bytes], most: int) -> list[bytes]:
    """At most so many lines that may tell something: the newest, and others evenly spaced."""
    if len(lines) <= most:
        return lines
    telling = [line for line in lines if is_telling(line.decode("utf-8", "replace"))] or lines
    newest = most // 2
    rest = telling[:-newest]
    return rest[:: max(1, -(-len(rest) // (most - newest)))] + telling[-newest:]


class _CsvSource:
    """A CSV file of the job's own."""

    def __init__(
        self, path: Path, position: Position | None, clock: Callable[[], float], inside: Path | str = ""
    ) -> None:
        self._path, self._inside = path, inside
        self._tail = Tail(path, position, inside=inside)
        self._reader = CsvReader()
        self._restarts = 0
        self._clock = clock
        if position is not None and position.offset:
            self._read_header()

    def _read_header(self) -> None:
        """Going on in the middle of a file: its first line still says what the columns are."""
        first = Tail(self._path, inside=self._inside)
        lines = first.lines()[:1]
        first.close()
        for line in lines:
            self._reader.read(line)

    def poll(self, is_last: bool) -> list[Report]:
        before = self._tail.previous_at
        lines = self._tail.lines(is_last)
        if not lines:
            return []
        if self._tail.restarts != self._restarts:
            self._restarts = self._tail.restarts
            self._reader.begin_anew()
        said = [self._reader.read(line) for line in lines]
        return list(_timed(said, before, self._tail.changed_at, self._clock(), "csv"))

    def positions(self) -> Positions:
        return _named("csv", self._tail.position)

    def close(self) -> None:
        self._tail.close()


class _EventSource:
    """A folder of TensorBoard's."""

    _PREFIX = "tensorboard:"

    def __init__(self, folder: Path, places: Mapping[str, Position], inside: Path | str = "") -> None:
        size = len(self._PREFIX)
        own = {name[size:]: place for name, place in places.items() if name.startswith(self._PREFIX)}
        self._events = EventFolder(folder, own, inside)

    def poll(self, is_last: bool) -> list[Report]:
        return [
            Report(each.at, whole(each.step), None, each.values, source="tensorboard") for each in self._events.poll()
        ]

    def positions(self) -> Positions:
        return {self._PREFIX + name: place for name, place in self._events.positions.items()}

    def close(self) -> None:
        self._events.close()


def _named(name: str, position: Position | None) -> Positions:
    return {} if position is None else {name: position}


def _timed(said: list[Counted | None], since: float, until: float, now: float, source: str) -> Iterator[Report]:
    """Lines that bear no time were written between the look before and the file's last change, evenly as far as anyone
    knows; that matters when nobody has looked for long."""
    end = min(until or now, now)
    begin = min(since or end, end)
    for number, each in enumerate(said, 1):
        if each is not None:
            at = each.at if each.at is not None else begin + (end - begin) * number / len(said)
            yield Report(at, each.step, each.total, each.metrics, source=source)
