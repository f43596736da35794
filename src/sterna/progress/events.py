"""Scalars in TensorBoard's event files, read without TensorBoard.

An event file is a sequence of records (length, checksum, bytes, checksum), each a protobuf message (`protobuf.py`). An
incomplete record is read later; one that is too large to hold scalars is skipped; a file with a wrong checksum is read
no further. Checksums of contents are not computed: they would cost more than all the rest.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

from sterna.progress.protobuf import Scalars, scalars_of
from sterna.progress.tail import MOST_BYTES, Position, Tail

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
_LARGEST_RECORD = 1 << 34
_LOOK_SECONDS = 2.0
"""Interval between two searches of the folder for new files."""
_DEEPEST, _MOST_FILES = 4, 200
MARK = "tfevents"


class EventFolder:
    """Follows all event files below a folder; tags of a sub-folder get its name before them (`train/loss`)."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        positions: dict[str, Position] | None = None,
        inside: str | os.PathLike[str] = "",
    ) -> None:
        """`inside`: a folder that links may not lead out of."""
        self._folder = os.fspath(folder)
        self._inside = inside
        self._positions = dict(positions or {})
        self._files: dict[str, EventFile] = {}
        self._look_at = 0.0

    def poll(self) -> list[Scalars]:
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._search()
        found = [scalars for name in sorted(self._files) for scalars in self._files[name].poll()]
        found.sort(key=lambda each: each.at)
        return found

    @property
    def positions(self) -> dict[str, Position]:
        found = {name: file.position for name, file in self._files.items()}
        return self._positions | {name: position for name, position in found.items() if position is not None}

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _search(self) -> None:
        for name in _event_files(self._folder):
            if name not in self._files and len(self._files) < _MOST_FILES:
                run = os.path.dirname(name)
                path = os.path.join(self._folder, name)
                prefix = f"{run}/" if run else ""
                self._files[name] = EventFile(path, prefix, self._positions.get(name), self._inside)


def _event_files(folder: str) -> Iterator[str]:
    base = folder.rstrip(os.sep).count(os.sep)
    for place, folders, names in os.walk(folder):
        if place.count(os.sep) - base >= _DEEPEST:
            folders.clear()
        folders.sort()
        for name in sorted(names):
            if MARK in name:
                yield os.path.relpath(os.path.join(place, name), folder)


class EventFile:
    """Follows one event file."""

    def __init__(
        self, path: str, prefix: str = "", position: Position | None = None, inside: str | os.PathLike[str] = ""
    ) -> None:
        self._tail = Tail(path, position, inside=inside)
        self._prefix = prefix
        self._is_broken = False
        self._restarts = 0

    @property
    def position(self) -> Position | None:
        return self._tail.position

    def close(self) -> None:
        self._tail.close()

    def poll(self) -> list[Scalars]:
        """Scalars since the last poll, one entry per step."""
        found: list[Scalars] = []
        for record in self._records():
            event = scalars_of(record)
            values = {self._prefix + tag: value for tag, value in event.values.items()}
            if found and found[-1].step == event.step:
                found[-1] = Scalars(event.at, event.step, found[-1].values | values)
            elif values:
                found.append(Scalars(event.at, event.step, values))
        return found

    def _records(self) -> Iterator[memoryview]:
        data = self._tail.read_new()
        if self._restarts != self._tail.restarts:
            self._restarts, self._is_broken = self._tail.restarts, False
        if self._is_broken:
            return
        at = 0
        while at + _HEADER.size <= len(data):
            size, checksum = _HEADER.unpack_from(data, at)
            if size > _LARGEST_RECORD or record_checksum(data[at : at + 8]) != checksum:
                self._is_broken = True
                break
            end = at + _HEADER.size + size + _FOOTER_BYTES
            if end > len(data):
                if end - at > MOST_BYTES and self._tail.offset + end <= self._tail.size:
                    at = end  # an image or a graph: it holds no scalar
                break
            yield memoryview(data)[at + _HEADER.size : end - _FOOTER_BYTES]
            at = end
        self._tail.advance(at)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def record_checksum(data: bytes) -> int:
    """Checksum of the format: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
