"""The few fields of TensorBoard's protobuf messages that hold scalars.

Values are read as torch, tensorboardX and TensorFlow write them: a plain float, or a tensor of one element. Everything
else in a message (images, graphs, histograms, names) is skipped, and a malformed message holds nothing.

    Event    1 wall_time  2 step  5 summary { 1 value { 1 tag  2 simple_value  8 tensor } }
    Tensor   1 dtype  2 shape { 2 dimension { 1 size } }  4 content  5 floats  6 doubles  7 ints  10 longs  13 halves
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sterna.progress.names import finite

_BFLOAT16 = 14
_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""Format of a value by the number of the tensor's type."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class Scalars(NamedTuple):
    """Scalars of one step."""

    at: float
    step: int
    values: dict[str, float | None]


class _Field(NamedTuple):
    number: int
    kind: int
    value: int
    data: memoryview


def scalars_of(record: memoryview) -> Scalars:
    """The scalars of an event; most often one, often none."""
    at, step = 0.0, 0
    values: dict[str, float | None] = {}
    try:
        for field in _fields(record):
            if field.number == 1 and field.kind == _EIGHT:
                at = struct.unpack("<d", field.data)[0]
            elif field.number == 2 and field.kind == _VARINT:
                step = _to_signed(field.value)
            elif field.number == 5 and field.kind == _BYTES:
                values |= _summary(field.data)
    except (struct.error, IndexError, ValueError):
        return Scalars(0.0, 0, {})
    return Scalars(at if math.isfinite(at) else 0.0, step, values)


def _summary(message: memoryview) -> dict[str, float | None]:
    pairs = [_value(field.data) for field in _fields(message) if field.number == 1 and field.kind == _BYTES]
    return {tag: finite(found) for tag, found in pairs if found is not None}


def _value(message: memoryview) -> tuple[str, float | None]:
    tag, found = "", None
    for field in _fields(message):
        if field.number == 1 and field.kind == _BYTES:
            tag = bytes(field.data).decode("utf-8", "replace")
        elif field.number == 2 and field.kind == _FOUR:
            found = struct.unpack("<f", field.data)[0]
        elif field.number == 8 and field.kind == _BYTES:
            found = _element(field.data)
    return tag, found


def _element(tensor: memoryview) -> float | None:
    """The element of a tensor that has one; None for any other."""
    sort, count, found = 0, 1, None
    for field in _fields(tensor):
        if field.number == 1 and field.kind == _VARINT:
            sort = field.value
        elif field.number == 2 and field.kind == _BYTES:
            count = _elements(field.data)
        elif field.number == 4 and field.kind == _BYTES:
            found = _unpack(sort, field.data)
        elif field.number in (5, 6) and field.kind != _VARINT:
            found = _unpack(1 if field.number == 5 else 2, field.data)
        elif field.number in (7, 10):
            found = float(_to_signed(_integer(field)))
        elif field.number == 13:
            found = _unpack(sort, struct.pack("<H", _integer(field) & 0xFFFF))
    return found if count == 1 else None


def _integer(field: _Field) -> int:
    """The first of a repeated number, packed or not."""
    return field.value if field.kind == _VARINT else _varint(field.data, 0)[0]


def _unpack(sort: int, data: bytes | memoryview) -> float | None:
    if sort == _BFLOAT16 and len(data) == 2:
        return float(struct.unpack("<f", b"\0\0" + bytes(data))[0])
    form = _FORMS.get(sort)
    return float(struct.unpack(form, data)[0]) if form and len(data) == struct.calcsize(form) else None


def _elements(shape: memoryview) -> int:
    count = 1
    for dimension in _fields(shape):
        if dimension.number == 2 and dimension.kind == _BYTES:
            count *= sum(field.value for field in _fields(dimension.data) if field.number == 1)
    return count


_NOTHING = memoryview(b"")


def _fields(message: memoryview) -> Iterator[_Field]:
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield _Field(key >> 3, kind, value, _NOTHING)
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(kind)
        if at + size > end:
            raise ValueError(size)
        yield _Field(key >> 3, kind, 0, message[at : at + size])
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(value)


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
