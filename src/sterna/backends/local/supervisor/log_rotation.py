"""The output of a replica: a file that the replica appends to, kept below a size by its shim.

There is no pipe: the program never waits for Sterna, and its output outlives daemon and shim. To rotate, the file is
copied to `out.log.1` and truncated in place, since the program holds it open. Lines written between the last copied
byte and the truncation are lost.
"""

from __future__ import annotations

import os
import time

from sterna.backends.local.kernel.atomic_files import remove_file
from sterna.backends.local.kernel.record_files import LOG, OLD_LOG

_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
_PART_BYTES = 1 << 20


class Log:
    """An open log, and the time of its next inspection."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self.descriptor = os.open(os.path.join(folder, LOG), flags, 0o644)
        self._size_bytes = self._size()
        self._looked_at = time.monotonic()
        self.pause_seconds: float | None = _SHORTEST_SECONDS if limit_bytes > 0 else None
        """Seconds until the next inspection; None: never."""

    def look(self) -> None:
        """Rotate if it is too large. A quiet log is inspected once a minute, a fast one often enough that it cannot
        double."""
        now, size_bytes = time.monotonic(), self._size()
        per_second = (size_bytes - self._size_bytes) / max(now - self._looked_at, 1e-3)
        if size_bytes > self._limit_bytes:
            self._rotate()
            size_bytes = self._size()
        room_bytes = max(self._limit_bytes - size_bytes, 0)
        pause_seconds = _LONGEST_SECONDS if per_second <= 0 else room_bytes / per_second
        self.pause_seconds = min(max(pause_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        self._size_bytes, self._looked_at = size_bytes, now

    def say(self, sentence: str) -> None:
        os.write(self.descriptor, f"sterna: {sentence}\n".encode())

    def _size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def _rotate(self) -> None:
        temporary = os.path.join(self._folder, f"{OLD_LOG}.{os.getpid()}")
        remove_file(temporary)
        copy = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            # While the copy runs a fast writer adds more: only the last part is kept.
            copied = max(self._size() - self._limit_bytes, 0)
            while part := os.pread(self.descriptor, _PART_BYTES, copied):
                os.write(copy, part)
                copied += len(part)
            os.ftruncate(self.descriptor, 0)
        finally:
            os.close(copy)
        os.rename(temporary, os.path.join(self._folder, OLD_LOG))
