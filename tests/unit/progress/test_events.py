"""Scalars are read from TensorBoard's files, from any writer and while they are being written."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.progress.events import EventFile, EventFolder, record_checksum
from sterna.progress.protobuf import Scalars, scalars_of
from sterna.progress.tail import MOST_BYTES
from tests.unit.progress.event_files import event, part, plain, record, tensor, varint

NAME = "events.out.tfevents.1700000000.host"


def _one(tmp_path: Path, data: bytes) -> list[Scalars]:
    path = tmp_path / NAME
    path.write_bytes(data)
    file = EventFile(str(path))
    found = file.poll()
    file.close()
    return found


def test_the_checksum_is_the_one_of_the_format() -> None:
    crc = ((record_checksum(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF) << 15
    assert (crc | crc >> 32) & 0xFFFFFFFF == 0xE3069283


KINDS = [(1, "<f"), (2, "<d"), (3, "<i"), (9, "<q"), (19, "<e")]


@pytest.mark.parametrize(("kind", "form"), KINDS, ids=["float", "double", "int", "long", "half"])
def test_a_tensor_of_one_element_is_a_scalar(tmp_path: Path, kind: int, form: str) -> None:
    assert _one(tmp_path, event(5, tensor("loss", kind, struct.pack(form, 3)))) == [(1.7e9, 5, {"loss": 3.0})]


def test_a_bfloat16_and_numbers_in_lists_are_read(tmp_path: Path) -> None:
    half = part(1, part(1, b"a") + part(8, varint(1 << 3) + varint(14) + part(13, varint(0x4040))))
    whole = part(1, part(1, b"b") + part(8, varint(1 << 3) + varint(9) + varint(10 << 3) + varint(-7)))
    real = part(1, part(1, b"c") + part(8, varint(1 << 3) + varint(1) + part(5, struct.pack("<f", 0.5))))
    assert _one(tmp_path, event(1, half, whole, real))[0].values == {"a": 3.0, "b": -7.0, "c": 0.5}


def test_a_tensor_of_many_elements_is_not_a_scalar(tmp_path: Path) -> None:
    shape = part(2, varint(1 << 3) + varint(2))
    values = [tensor("histogram", 1, struct.pack("<ff", 1, 2), shape), plain("loss", 0.5)]
    assert _one(tmp_path, event(1, *values))[0].values == {"loss": 0.5}


def test_values_of_one_step_come_together_and_nan_is_no_value(tmp_path: Path) -> None:
    data = event(0) + event(1, plain("loss", 1)) + event(1, plain("acc", math.nan)) + event(2, plain("loss", 0.5))
    assert _one(tmp_path, data) == [(1.7e9, 1, {"loss": 1.0, "acc": None}), (1.7e9, 2, {"loss": 0.5})]


def test_a_record_that_is_not_whole_waits(tmp_path: Path) -> None:
    path = tmp_path / NAME
    data = event(1, plain("loss", 1)) + event(2, plain("loss", 0.5))
    file = EventFile(str(path))
    seen: list[int] = []
    with path.open("ab", buffering=0) as growing:
        for byte in data:
            growing.write(bytes([byte]))
            seen += [each.step for each in file.poll()]
    file.close()
    assert seen == [1, 2]


def test_a_picture_larger_than_a_look_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(event(1, plain("loss", 1)) + record(b"\0" * 2 * MOST_BYTES) + event(2, plain("loss", 0.5)))
    file = EventFile(str(path))
    assert [each.step for _ in range(4) for each in file.poll()] == [1, 2]
    file.close()


def test_a_picture_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / NAME
    picture = record(b"\0" * 2 * MOST_BYTES)
    path.write_bytes(event(1, plain("loss", 1)) + picture[: MOST_BYTES + 100])
    file = EventFile(str(path))
    assert [each.step for _ in range(3) for each in file.poll()] == [1]
    with path.open("ab") as more:
        more.write(picture[MOST_BYTES + 100 :] + event(2, plain("loss", 0.5)))
    assert [each.step for _ in range(3) for each in file.poll()] == [2]
    file.close()


def test_a_damaged_file_is_read_up_to_the_damage_and_again_after_truncation(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(event(1, plain("loss", 1)) + b"garbage that is no header" * 4)
    file = EventFile(str(path))
    assert [each.step for _ in range(3) for each in file.poll()] == [1]
    path.write_bytes(event(7, plain("loss", 1)))
    assert [each.step for each in file.poll()] == [7]
    file.close()


def test_runs_below_a_folder_get_their_names_and_new_files_are_found(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    assert folder.poll() == []
    for run, at in (("train", 1.0), ("validation", 2.0)):
        (tmp_path / run).mkdir()
        (tmp_path / run / NAME).write_bytes(event(1, plain("epoch_loss", at), at=at))
    (tmp_path / "notes.txt").write_text("nothing")
    folder._look_at = 0
    assert [each.values for each in folder.poll()] == [{"train/epoch_loss": 1.0}, {"validation/epoch_loss": 2.0}]
    positions = folder.positions
    folder.close()
    assert EventFolder(tmp_path, positions).poll() == []


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_hold_nothing_and_break_nothing(data: bytes) -> None:
    scalars_of(memoryview(data))
    scalars_of(memoryview(part(5, part(1, data))))
    scalars_of(memoryview(part(5, part(1, part(8, data)))))
