"""Follow a file that another process writes, whole lines at a time.

The file may be missing, empty, truncated, replaced, or end in the middle of a line; a poll that finds nothing new costs
one system call. It follows one name and never goes back to files that were rotated away.
"""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import IO, cast

import msgspec

MOST_BYTES = 1 << 18
"""Upper bound on bytes per read; the rest waits for the next."""
_BACKLOG_BYTES = 1 << 21
"""A log that is farther ahead is read from near its end: the newest lines matter most."""
_PIECE_BYTES = 1 << 16
_LINE_BREAKS = re.compile(rb"[\r\n\b]+")
_RENAME_SECONDS = 2.0
"""Interval between checks that the name still refers to the same file."""


class Position(msgspec.Struct, frozen=True):
    """Position in a file, stored by callers that continue after a restart."""

    device: int
    inode: int
    offset: int
    at: float
    """Modification time of the file when it was read up to here."""


class Tail:
    """Follows one file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        position: Position | None = None,
        is_log: bool = False,
        is_timed: bool = True,
        inside: str | os.PathLike[str] = "",
    ) -> None:
        """`is_log`: a redrawn progress bar is a line of its own, and a large backlog is skipped. `is_timed`: keep
        `changed_at` current, which costs another system call. `inside`: a folder that links may not lead out of, for
        readers with more rights than the writer."""
        self.path = os.fspath(path)
        self._inside = os.path.realpath(inside) if os.fspath(inside) else ""
        self.changed_at = 0.0
        """Modification time of the newest bytes."""
        self.previous_at = position.at if position else 0.0
        """Modification time of the bytes before `advance`."""
        self.restarts = 0
        """Number of times the file was truncated or replaced."""
        self.size = 0
        """Size of the file at the last read."""
        self._is_log, self._is_timed = is_log, is_timed
        self._resume = position
        self._file = -1
        self._identity = (0, 0)
        self._offset = 0
        self._read_size = -1
        self._check_at = 0.0
        self._is_in_long_line = False

    @property
    def position(self) -> Position | None:
        if self._file < 0:
            return self._resume
        return Position(*self._identity, self._offset, self.previous_at)

    def lines(self, is_last: bool = False) -> list[bytes]:
        """Whole lines since the last call; with `is_last` everything, including an unfinished line."""
        found = self._whole_lines()
        if is_last:
            while self._file >= 0 and self._read_size < 0:
                found += self._whole_lines()
            found += self._rest()
        return found

    def _whole_lines(self) -> list[bytes]:
        data = self._split_redraws(self.read_new())
        end = data.rfind(b"\n") + 1
        if not end:
            if len(data) >= MOST_BYTES:
                self.advance(len(data))
                self._is_in_long_line = True
            return []
        self.advance(end)
        found = data[:end].split(b"\n")
        if self._is_in_long_line:
            self._is_in_long_line = False
            del found[0]
        return [line for line in found if line]

    def _rest(self) -> list[bytes]:
        self._read_size = -1
        data = self._split_redraws(self.read_new())
        self.advance(len(data))
        return [] if self._is_in_long_line else [line for line in data.split(b"\n") if line]

    def _split_redraws(self, data: bytes) -> bytes:
        """In a log, make every redraw of a progress bar a line of its own."""
        if self._is_log and (b"\r" in data or b"\b" in data):
            return data.replace(b"\r", b"\n").replace(b"\b", b"\n")
        return data

    def read_new(self) -> bytes:
        """Bytes since the last `advance`, at most `MOST_BYTES`; empty if nothing was written since the last call."""
        try:
            if self._file < 0 and not self._open():
                return b""
            size, before = os.lseek(self._file, 0, os.SEEK_END), self.size
            self.size = size
            if size == self._read_size:
                self._look_for_successor()
                return b""
            if size < before or size < self._offset:
                self._restart()
            return self._read(size)
        except OSError:
            self.close()
            return b""

    def advance(self, count: int) -> None:
        """Mark the first `count` bytes of `read_new` as processed."""
        self._offset += count
        self.previous_at = max(self.previous_at, self.changed_at)

    @property
    def offset(self) -> int:
        return self._offset

    def close(self) -> None:
        if self._file >= 0:
            self._resume = self.position
            os.close(self._file)
            self._file = -1

    def _read(self, size: int) -> bytes:
        if self._is_log and size - self._offset > _BACKLOG_BYTES:
            self._offset = size - MOST_BYTES
            self._is_in_long_line = True
        data = os.pread(self._file, min(MOST_BYTES, size - self._offset), self._offset)
        is_all = self._offset + len(data) >= size
        self._read_size = size if is_all else -1
        if data and self._is_timed:
            self.changed_at = os.fstat(self._file).st_mtime
        return data

    def _open(self) -> bool:
        if not os.access(self.path, os.R_OK):
            return False  # an exception would cost several times as much
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        if self._inside and not self._is_inside():
            os.close(self._file)
            self._file = -1
            return False
        found = os.fstat(self._file)
        self._identity = (found.st_dev, found.st_ino)
        self._offset, self._read_size, self.size = 0, -1, 0
        before, self._resume = self._resume, None
        if before is not None:
            if (before.device, before.inode) == self._identity and before.offset <= found.st_size:
                self._offset = before.offset
            else:
                self.restarts += 1
        return True

    def _is_inside(self) -> bool:
        """Asked of what was opened, not of its name, which may mean something else a moment later."""
        try:
            real = os.readlink(f"/proc/self/fd/{self._file}")
        except OSError:
            return False
        return real.startswith(self._inside.rstrip(os.sep) + os.sep)

    def _restart(self) -> None:
        self._offset, self._is_in_long_line = 0, False
        self.restarts += 1

    def _look_for_successor(self) -> None:
        """All of this file has been read: if the name means another one by now, go on with that."""
        now = time.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + _RENAME_SECONDS
        try:
            found = os.stat(self.path)
        except OSError:
            return
        if (found.st_dev, found.st_ino) != self._identity:
            os.close(self._file)
            self._file = -1
            self._restart()
            self._read_size = -1


def lines_in(path: str) -> Iterator[bytes]:
    """Lines of a saved file, gzipped or not, as a terminal shows them: a redrawn progress bar is a line of its own."""
    with open(path, "rb") as plain:
        is_packed = plain.read(2) == b"\x1f\x8b"
    opened = cast("Callable[..., IO[bytes]]", gzip.open if is_packed else open)
    with opened(path, "rb") as file:
        rest = b""
        while piece := file.read(_PIECE_BYTES):
            *whole, rest = _LINE_BREAKS.split(rest + piece)
            if len(rest) > _PIECE_BYTES:
                whole, rest = [*whole, rest[:_PIECE_BYTES]], b""
            yield from (line for line in whole if line)
        if rest:
            yield rest
