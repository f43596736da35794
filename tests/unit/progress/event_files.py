"""TensorBoard event files as torch and TensorFlow write them, made by hand for tests."""

from __future__ import annotations

import struct

from sterna.progress.events import record_checksum


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def plain(tag: str, value: float) -> bytes:
    """As torch writes a scalar."""
    return part(1, part(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))


def tensor(tag: str, kind: int, content: bytes, shape: bytes = b"") -> bytes:
    """As TensorFlow writes one."""
    return part(1, part(1, tag.encode()) + part(8, varint(1 << 3) + varint(kind) + part(2, shape) + part(4, content)))


def event(step: int, *values: bytes, at: float = 1.7e9) -> bytes:
    body = varint(1 << 3 | 1) + struct.pack("<d", at) + varint(2 << 3) + varint(step)
    return record(body + (part(5, b"".join(values)) if values else part(3, b"brain.Event:2")))


def record(body: bytes) -> bytes:
    size = struct.pack("<Q", len(body))
    return size + struct.pack("<I", record_checksum(size)) + body + struct.pack("<I", record_checksum(body))
