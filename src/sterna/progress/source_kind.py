"""`SourceKind`: everything that Sterna knows about one progress source; manifests and readers derive from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.progress.names import ProgressRow
from sterna.progress.report import Source
from sterna.progress.tail import Position

FileReader = Callable[[str], Iterator[tuple[bytes, ProgressRow | None]]]


@dataclass(frozen=True)
class SourceFiles:
    """Files of one replica that a source may read."""

    folder: Path
    """The replica's folder, in which the agent's reports and the captured output are."""
    path: Path
    """The file or folder that the job declared for this source; the replica's folder if it declared none."""
    inside: Path | str
    """A folder that links may not lead out of; empty: any."""
    positions: Mapping[str, Position]
    """How far a predecessor has read, by the names that this source uses."""
    clock: Callable[[], float]


def no_path(parameters: Any) -> str:
    return ""


def no_file(name: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """One way in which a job can report progress."""

    name: str
    """Key under `progress` in a TrainingJob, and annotation `sterna.dev/<name>` of any job."""
    summary: str
    """One phrase for the documentation."""
    parse: Callable[[Any], Any]
    """Check the value that a user gives, and return JSON values; `ValueError` with what was expected instead."""
    open: Callable[[Any, SourceFiles], Source]
    path: Callable[[Any], str] = no_path
    """The file or folder that it reads, as the job names it; the node monitor resolves it in the pod's volumes."""
    is_always_on: bool = False
    """Read for every replica, declared or not."""
    title: str = ""
    """Name in the output of `sterna try-pattern`."""
    reads_file: Callable[[str], bool] = no_file
    """True for names of saved files that `read_file` understands."""
    read_file: FileReader | None = field(default=None)
    """Read a saved file: lines with what they report, None for a line that reports nothing."""


def parse_path(value: object) -> str:
    """Parameters of a source that is declared by a path."""
    if not isinstance(value, str) or not value:
        raise ValueError("a path, as text")
    return value
