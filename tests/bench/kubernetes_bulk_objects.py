"""Create a hundred thousand objects in seconds: copies of a few real ones, written directly into etcd.

Creating them through the API would take minutes. A copy is the stored bytes of an object
with names and ids replaced by others of the same length, which leaves every encoding (protobuf, JSON) valid.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping

from tests.kubernetes.control_plane import ControlPlane

BATCH = 500
"""Copies a transaction; etcd is started with a limit above that."""


def stored(plane: ControlPlane, key: str) -> bytes:
    """An object as etcd holds it; keys are `/registry/pods/default/NAME` and the like."""
    answer = plane.etcd_ask("kv/range", {"key": _text(key.encode())})
    return base64.b64decode(answer["kvs"][0]["value"])


def copy(data: bytes, replacements: Mapping[str, str]) -> bytes:
    for old, new in replacements.items():
        if len(old) != len(new):
            raise ValueError(f"{old!r} and {new!r} differ in length, which would break what is encoded around them")
        data = data.replace(old.encode(), new.encode())
    return data


def write_all(plane: ControlPlane, objects: Iterable[tuple[str, bytes]]) -> int:
    """Number of objects that were copied."""
    count = 0
    for batch in _batches(objects):
        puts = [{"requestPut": {"key": _text(key.encode()), "value": _text(value)}} for key, value in batch]
        plane.etcd_ask("kv/txn", {"success": puts})
        count += len(batch)
    return count


def id_of(kind: int, number: int) -> str:
    """A uid like any other, the same in every run."""
    return str(uuid.UUID(int=(kind << 64) + number + 1, version=4))


def _batches(objects: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    for each in objects:
        batch.append(each)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
