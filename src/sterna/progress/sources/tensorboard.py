"""A folder of TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Iterator

from sterna.progress.events import MARK, EventFile, EventFolder
from sterna.progress.names import ProgressRow, whole
from sterna.progress.registry import register
from sterna.progress.report import Positions, SourceReport
from sterna.progress.source_kind import SourceFiles, SourceKind, parse_path

_PREFIX = "tensorboard:"


class TensorBoardSource:
    """Follows all event files below one folder."""

    def __init__(self, files: SourceFiles) -> None:
        own = {name.removeprefix(_PREFIX): position for name, position in files.positions.items()}
        self._events = EventFolder(files.path, own, files.inside)

    def poll(self, is_last: bool) -> list[SourceReport]:
        return [
            SourceReport(each.at, whole(each.step), None, each.values, source="tensorboard")
            for each in self._events.poll()
        ]

    def positions(self) -> Positions:
        return {_PREFIX + name: position for name, position in self._events.positions.items()}

    def close(self) -> None:
        self._events.close()


def _read_file(path: str) -> Iterator[tuple[bytes, ProgressRow | None]]:
    with open(path, "rb"):
        pass  # raises for a file that cannot be opened
    file = EventFile(path)
    before = None
    while True:
        for each in file.poll():
            yield b"", ProgressRow(max(each.step, 0), None, each.values, each.at)
        if file.position == before:
            break
        before = file.position
    file.close()


SOURCE = register(
    SourceKind(
        name="tensorboard",
        summary="a folder with TensorBoard's event files",
        parse=parse_path,
        open=lambda path, files: TensorBoardSource(files),
        path=lambda path: str(path),
        title="TensorBoard",
        reads_file=lambda name: MARK in name,
        read_file=_read_file,
    )
)
