"""Files that users point at, as text: plain or gzipped, and one sentence when it cannot be had.

Used for traces and speed-up curves alike. Archives are not unpacked: which of their members is meant is not for us to
guess.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from sterna.errors import UserError

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | Path, wanted: str = "a CSV or JSON file") -> str:
    """All of a file, decompressed if it is gzipped (whatever its name), without a byte-order mark. `wanted` is what to
    give instead of a file that is not text."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if data.startswith(_GZIP):
        data = _decompressed(path, data)
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


def _decompressed(path: str | Path, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: the gzip data is damaged or cut off; fetch the file again.") from error


def _decoded(path: str | Path, data: bytes, wanted: str) -> str:
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
