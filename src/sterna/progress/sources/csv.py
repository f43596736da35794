"""A CSV file of the job's own, with SpeCon's, Voda's or other known columns."""

from __future__ import annotations

from collections.abc import Iterator

from sterna.progress.csv_rows import CsvReader
from sterna.progress.names import ProgressRow
from sterna.progress.registry import register
from sterna.progress.report import Positions, SourceReport, position_entry, spread_over_time
from sterna.progress.source_kind import SourceFiles, SourceKind, parse_path
from sterna.progress.tail import Tail, lines_in


class CsvSource:
    """Follows one CSV file."""

    def __init__(self, files: SourceFiles) -> None:
        position = files.positions.get("csv")
        self._files = files
        self._tail = Tail(files.path, position, inside=files.inside)
        self._reader = CsvReader()
        self._restarts = 0
        if position is not None and position.offset:
            self._read_header()

    def _read_header(self) -> None:
        """Learn the columns from the first line before continuing in the middle of the file."""
        first = Tail(self._files.path, inside=self._files.inside)
        lines = first.lines()[:1]
        first.close()
        for line in lines:
            self._reader.read(line)

    def poll(self, is_last: bool) -> list[SourceReport]:
        before = self._tail.previous_at
        lines = self._tail.lines(is_last)
        if not lines:
            return []
        if self._tail.restarts != self._restarts:
            self._restarts = self._tail.restarts
            self._reader.reset()
        rows = [self._reader.read(line) for line in lines]
        return list(spread_over_time(rows, before, self._tail.changed_at, self._files.clock(), "csv"))

    def positions(self) -> Positions:
        return position_entry("csv", self._tail.position)

    def close(self) -> None:
        self._tail.close()


def _read_file(path: str) -> Iterator[tuple[bytes, ProgressRow | None]]:
    reader = CsvReader()
    return ((line, reader.read(line)) for line in lines_in(path))


SOURCE = register(
    SourceKind(
        name="csv",
        summary="a CSV file with a column of steps, relative to the working folder",
        parse=parse_path,
        open=lambda path, files: CsvSource(files),
        path=lambda path: str(path),
        title="CSV",
        reads_file=lambda name: name.endswith(".csv"),
        read_file=_read_file,
    )
)
