"""Files that users point at, as text: plain or gzipped, and one sentence when it cannot be had.

Used for traces, speed-up curves and descriptions alike. Archives are not unpacked: which of their members is meant is
not for us to guess. No more is read than any real file holds, so that a pipe or a device without an end is refused.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

from sterna.errors import UserError

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIPPED = 16 + zlib.MAX_WBITS
"""How zlib is told to expect gzip's header and check sum."""

_MOST_BYTES = 1 << 30
"""Of a trace: ten million jobs."""
DOCUMENT_BYTES = 64 << 20
"""Of what people write."""
_PART_BYTES = 1 << 20


def read_text(path: str | Path, wanted: str = "a CSV or JSON file", most_bytes: int = _MOST_BYTES) -> str:
    """All of a file, decompressed if it is gzipped (whatever its name), without a byte-order mark. `wanted` is what to
    give instead of a file that is not text."""
    if not str(path):
        raise UserError(f"The path of a file is empty; give {wanted}.")
    try:
        with Path(path).open("rb") as file:
            return text_in(file, path, wanted, most_bytes)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def text_in(file: BinaryIO, path: str | Path, wanted: str, most_bytes: int = _MOST_BYTES) -> str:
    """The same of a file that is open."""
    data = bytearray()
    while len(data) <= most_bytes and (part := file.read(_PART_BYTES)):
        data += part
        if b"\0" in part and not data.startswith(_GZIP):
            break  # no text, however much more of it comes
    if data.startswith(_GZIP) and len(data) <= most_bytes:
        data = _decompressed(path, data, most_bytes)
    if len(data) > most_bytes:
        most = f"{most_bytes >> 20:,} MiB"
        raise UserError(f"{path}: this holds more than {most}, which is not read; give a smaller file.")
    return _decoded(path, data, wanted)


def unreadable(path: str | Path, error: Exception) -> UserError:
    """What to tell the user when opening `path` has failed."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: there is no such file; check the path.")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path}: this is a folder; give one of the files in it.")
    if isinstance(error, PermissionError):
        return UserError(f"{path}: you may not read or write this file; change its permissions or choose another.")
    return UserError(f"{path}: cannot be opened ({getattr(error, 'strerror', None) or error}); choose another file.")


def _decompressed(path: str | Path, data: bytearray, most_bytes: int) -> bytearray:
    """What is in it; a little too much if it holds too much."""
    found, rest = bytearray(), bytes(data)
    while rest and len(found) <= most_bytes:
        member = zlib.decompressobj(_GZIPPED)
        try:
            found += member.decompress(rest, most_bytes + 1 - len(found))
        except zlib.error as error:
            raise _damaged(path) from error
        if not member.eof and len(found) <= most_bytes:
            raise _damaged(path)
        rest = member.unused_data.lstrip(b"\0")
    return found


def _damaged(path: str | Path) -> UserError:
    return UserError(f"{path}: the gzip data is damaged or cut off; fetch the file again.")


def _decoded(path: str | Path, data: bytearray, wanted: str) -> str:
    if data[257:262] == b"ustar":
        raise UserError(f"{path}: this is a tar archive; unpack it (tar -xf) and give one of its files.")
    if data.startswith(_UTF16):
        raise UserError(f"{path}: the text is UTF-16; save it as UTF-8.")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise UserError(f"{path}, line {line}: found binary data, expected text in UTF-8; give {wanted}.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"0x{data[error.start]:02x}"
        raise UserError(f"{path}, line {line}: found the byte {byte}, expected UTF-8; save it as UTF-8.") from error
