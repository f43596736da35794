"""Text of files that users name, plain or gzipped, with one-sentence errors.

Used for traces, speed-up curves and cluster files. Archives are rejected, because the member that is meant is unknown.
Reading stops at a size limit, so that endless pipes and devices are rejected.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

from sterna.errors import UserError

_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIPPED = 16 + zlib.MAX_WBITS
"""Window bits that make zlib expect the header and check sum of gzip."""

_MOST_BYTES = 1 << 30
"""Size limit of a trace: ten million jobs."""
DOCUMENT_BYTES = 64 << 20
"""Size limit of files that are written by hand."""
_PART_BYTES = 1 << 20


def read_text(path: str | Path, wanted: str = "a CSV or JSON file", most_bytes: int = _MOST_BYTES) -> str:
    """Read a file, decompressed if it is gzipped (whatever its name), without a byte-order mark. `wanted` names the
    kind of file in errors."""
    if not str(path):
        raise UserError(f"The path of a file is empty; give {wanted}.")
    try:
        with Path(path).open("rb") as file:
            return text_in(file, path, wanted, most_bytes)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def text_in(file: BinaryIO, path: str | Path, wanted: str, most_bytes: int = _MOST_BYTES) -> str:
    """Read an open file as `read_text` does."""
    data = bytearray()
    while len(data) <= most_bytes and (part := file.read(_PART_BYTES)):
        data += part
        if b"\0" in part and not data.startswith(_GZIP):
            break  # binary, so the rest does not matter
    if data.startswith(_GZIP) and len(data) <= most_bytes:
        data = _decompress(path, data, most_bytes)
    if len(data) > most_bytes:
        most = f"{most_bytes >> 20:,} MiB"
        raise UserError(f"{path}: this holds more than {most}, which is not read; give a smaller file.")
    return _decode(path, data, wanted)


def unreadable(path: str | Path, error: Exception) -> UserError:
    """Translate an error of opening `path`."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: there is no such file; check the path.")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path}: this is a folder; give one of the files in it.")
    if isinstance(error, PermissionError):
        return UserError(f"{path}: you may not read or write this file; change its permissions or choose another.")
    return UserError(f"{path}: cannot be opened ({getattr(error, 'strerror', None) or error}); choose another file.")


def _decompress(path: str | Path, data: bytearray, most_bytes: int) -> bytearray:
    """Decompress all members, up to one byte more than the limit."""
    found, rest = bytearray(), bytes(data)
    while rest and len(found) <= most_bytes:
        member = zlib.decompressobj(_GZIPPED)
        try:
            found += member.decompress(rest, most_bytes + 1 - len(found))
        except zlib.error as error:
            raise _damage_error(path) from error
        if not member.eof and len(found) <= most_bytes:
            raise _damage_error(path)
        rest = member.unused_data.lstrip(b"\0")
    return found


def _damage_error(path: str | Path) -> UserError:
    return UserError(f"{path}: the gzip data is damaged or cut off; fetch the file again.")


def _decode(path: str | Path, data: bytearray, wanted: str) -> str:
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
