"""Sterna's own format: what may be left out, and that writing and reading are inverse."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import UserError
from sterna.workloads.formats.native import read, write_native
from sterna.workloads.load import load_trace
from sterna.workloads.table import Table, read_rows
from sterna.workloads.trace import NUMBER_COLUMNS, TEXT_COLUMNS, Trace, make_trace

WriteFile = Callable[[str | bytes], Path]

FULL = """\
# written by hand
job,submit_s,workers,duration_s,min_workers,max_workers,gpus_per_worker,model,category,user,priority,pool

b,10.5,2,60,1,4,0.5,vgg16,cnn,ada,1,east
# a comment between jobs, with an "unbalanced quote
a,10,1,30,,,,,,,,
"""


def same_jobs(one: Trace, other: Trace) -> bool:
    numbers = all(
        np.array_equal(getattr(one, field), getattr(other, field), equal_nan=True) for field in NUMBER_COLUMNS
    )
    return numbers and all(getattr(one, field) == getattr(other, field) for field in TEXT_COLUMNS)


def read_back(text: str) -> Trace:
    return read(Table.of(read_rows("t.csv", text)))


def test_four_columns_are_enough(write_file: WriteFile) -> None:
    trace = load_trace(write_file("job,submit_s,workers,duration_s\na,3,2,60\n"))
    assert (trace.kind, len(trace), trace.notices) == ("native", 1, ())
    assert (trace.submit_seconds.tolist(), trace.duration_seconds.tolist()) == ([3.0], [60.0])


def test_empty_cells_have_the_default_of_their_column(write_file: WriteFile) -> None:
    trace = load_trace(write_file(FULL))
    assert trace.name == ("a", "b")
    assert trace.minimum.tolist() == [1, 1]
    assert trace.maximum.tolist() == [1, 4]
    assert trace.devices_per_worker.tolist() == [1.0, 0.5]
    assert trace.priority.tolist() == [0, 1]
    assert (trace.model, trace.category, trace.user) == (("", "vgg16"), ("", "cnn"), ("", "ada"))
    assert trace.pool == ("", "east")


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\n"])
def test_line_ends_of_any_system_are_read(write_file: WriteFile, ends: str) -> None:
    lines = ["job,submit_s,workers,duration_s", "a,0,1,5", "b,1,1,5"]
    assert load_trace(write_file(ends.join(lines))).name == ("a", "b")


def test_a_byte_order_mark_and_blanks_around_cells_do_not_matter(write_file: WriteFile) -> None:
    trace = load_trace(write_file("\ufeffjob, submit_s, workers, duration_s\n a , 0, 1, 5\n"))
    assert trace.name == ("a",)


def test_a_gzipped_file_is_read_whatever_its_name(write_file: WriteFile) -> None:
    assert load_trace(write_file(gzip.compress(FULL.encode()))).name == ("a", "b")


def test_columns_that_are_not_ours_are_ignored_aloud(write_file: WriteFile) -> None:
    trace = load_trace(write_file("job,submit_s,workers,duration_s,min_worker\na,0,2,5,1\n"))
    assert trace.notices == ("ignored the column 'min_worker'; did you mean 'min_workers'?",)


def test_columns_that_say_nothing_are_not_written() -> None:
    out = io.StringIO()
    write_native(make_trace(name=["a"], submit_seconds=[0.25], workers=[1], duration_seconds=[60], model=["bert"]), out)
    assert out.getvalue() == "job,submit_s,workers,duration_s,model\na,0.25,1,60,bert\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_what_is_written_to_a_path_is_read_back(write_file: WriteFile, tmp_path: Path, name: str) -> None:
    trace = load_trace(write_file(FULL))
    path = tmp_path / f"again-{name}"
    write_native(trace, path)
    assert same_jobs(trace, load_trace(path))
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_writing_where_one_cannot_is_one_sentence(write_file: WriteFile, tmp_path: Path) -> None:
    trace = load_trace(write_file(FULL))
    with pytest.raises(UserError, match="this is a folder"):
        write_native(trace, tmp_path)


words = st.text(st.characters(blacklist_categories=("C", "Z")) | st.sampled_from(' ",;#'), max_size=8)
names = words.map(str.strip).filter(lambda name: name != "" and not name.startswith("#"))
positive = st.floats(min_value=1e-300, max_value=1e15)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    unique = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    count = len(unique)
    bounds = [sorted(three) for three in column(st.tuples(*[st.integers(1, 10**6)] * 3))]
    return make_trace(
        name=unique,
        submit_seconds=column(st.floats(min_value=0, max_value=1e15)),
        workers=[middle for _, middle, _ in bounds],
        minimum=[low for low, _, _ in bounds],
        maximum=[high for _, _, high in bounds],
        duration_seconds=column(positive),
        devices_per_worker=column(st.integers(1, 8) | st.floats(0, 1, exclude_min=True, exclude_max=True)),
        priority=column(st.integers(-9, 9)),
        model=column(words),
        category=column(words),
        user=column(words),
        pool=column(words),
    )


@given(traces())
def test_every_trace_survives_being_written_and_read(trace: Trace) -> None:
    out = io.StringIO()
    write_native(trace, out)
    assert same_jobs(trace, read_back(out.getvalue()))


def test_requested_times_may_be_missing_and_are_written_back(write_file: WriteFile) -> None:
    trace = load_trace(write_file("job,submit_s,workers,duration_s,requested_s\na,0,1,60,90\nb,1,1,60,\n"))
    assert trace.requested_seconds.tolist() == pytest.approx([90.0, np.nan], nan_ok=True)
    out = io.StringIO()
    write_native(trace, out)
    assert out.getvalue() == "job,submit_s,workers,duration_s,requested_s\na,0,1,60,90\nb,1,1,60,\n"
    assert trace.with_requested_times(2.0).requested_seconds.tolist() == [90.0, 120.0]
    with pytest.raises(UserError, match="line 2, column 'requested_s': found '0', expected a number above 0"):
        load_trace(write_file("job,submit_s,workers,duration_s,requested_s\na,0,1,60,0\n"))
