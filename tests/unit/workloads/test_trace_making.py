"""make_trace: what it fills in, sorts and refuses; and what can be made of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sterna.errors import Bug, UserError
from sterna.workloads.trace import NUMBER_COLUMNS, Trace, make_trace, numbered_names


def a_trace(**changes: Any) -> Trace:
    columns: dict[str, Any] = {
        "name": ["a", "b"],
        "submit_seconds": [0, 5],
        "workers": [1, 4],
        "duration_seconds": [9, 7],
    }
    return make_trace(**(columns | changes))


def test_what_is_left_out_has_its_default() -> None:
    trace = a_trace(model=["vgg16", ""])
    assert trace.minimum.tolist() == trace.maximum.tolist() == [1, 4]
    assert trace.devices_per_worker.tolist() == [1.0, 1.0]
    assert trace.priority.tolist() == [0, 0]
    assert trace.user == trace.pool == ("", "")
    assert trace.category == trace.model == ("vgg16", "")


def test_a_category_of_its_own_is_kept() -> None:
    assert a_trace(model=["vgg16", "bert"], category=["", "nightly"]).category == ("vgg16", "nightly")


def test_jobs_are_sorted_by_submit_time_then_name() -> None:
    trace = a_trace(
        name=["z", "b", "a"],
        submit_seconds=[1, 1, 3],
        workers=[1, 2, 3],
        duration_seconds=[4, 5, 6],
        user=["x", "y", "w"],
    )
    assert trace.name == ("b", "z", "a")
    assert trace.workers.tolist() == [2, 1, 3]
    assert trace.duration_seconds.tolist() == [5.0, 4.0, 6.0]
    assert trace.user == ("y", "x", "w")


def test_submit_times_are_not_shifted() -> None:
    assert a_trace(submit_seconds=[100, 200]).submit_seconds.tolist() == [100.0, 200.0]


def test_columns_are_read_only_in_a_trace_and_in_all_made_of_it() -> None:
    for trace in (a_trace(), a_trace().take([1]), a_trace().elastic(0.5, 2)):
        assert not any(getattr(trace, field).flags.writeable for field in NUMBER_COLUMNS)


def test_the_caller_keeps_the_right_to_write_to_its_own_arrays() -> None:
    submit = np.array([0.0, 5.0])
    trace = a_trace(submit_seconds=submit)
    submit[0] = 3
    assert trace.submit_seconds.tolist() == [0.0, 5.0]


def test_columns_have_their_types() -> None:
    trace = a_trace(workers=[1.0, 4.0], submit_seconds=[0, 5])
    assert {trace.workers.dtype, trace.minimum.dtype, trace.maximum.dtype, trace.priority.dtype} == {np.dtype(np.int64)}
    assert {trace.submit_seconds.dtype, trace.duration_seconds.dtype} == {np.dtype(np.float64)}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no jobs": (
        {"name": [], "submit_seconds": [], "workers": [], "duration_seconds": []},
        "trace: the trace has no jobs.",
    ),
    "fractional workers": (
        {"workers": [1, 2.5]},
        "trace, job 'b', column 'workers': found 2.5, expected a whole number",
    ),
    "no workers": ({"workers": [0, 1]}, "job 'a', column 'workers': found 0, expected a whole number of at least 1."),
    "time before the start": (
        {"submit_seconds": [-1, 0]},
        "column 'submit_s': found -1, expected a number of at least 0.",
    ),
    "infinite duration": (
        {"duration_seconds": [1, np.inf]},
        "column 'duration_s': found inf, expected a number above 0.",
    ),
    "unknown duration": (
        {"duration_seconds": [np.nan, 1]},
        "column 'duration_s': found nan, expected a number above 0.",
    ),
    "no duration": ({"duration_seconds": [1, 0]}, "column 'duration_s': found 0, expected a number above 0."),
    "one and a half devices": (
        {"devices_per_worker": [1, 1.5]},
        "found 1.5, expected a whole number of at least 1, or a",
    ),
    "no devices": ({"devices_per_worker": [0, 1]}, "column 'gpus_per_worker': found 0, expected"),
    "half a priority": ({"priority": [0, 0.5]}, "column 'priority': found 0.5, expected a whole number."),
    "bounds crossed": ({"minimum": [3, 4], "maximum": [2, 4]}, "min_workers 3 is above max_workers 2; make it at most"),
    "too few workers": (
        {"minimum": [2, 4], "maximum": [3, 4]},
        "workers 1 is not between min_workers 2 and max_workers 3",
    ),
    "too many workers": (
        {"maximum": [1, 3], "minimum": [1, 1]},
        "workers 4 is not between min_workers 1 and max_workers 3",
    ),
    "the same name twice": ({"name": ["a", "a"]}, "the name 'a' is taken by row 1; give each job its own name."),
    "names that differ in blanks": ({"name": ["a", " a "]}, "the name 'a' is taken by row 1"),
    "no name": ({"name": ["a", " "]}, "found no name, expected one that is not empty and does not start with #."),
    "a name like a comment": (
        {"name": ["#a", "b"]},
        "found the name '#a', expected one that is not empty and does not",
    ),
    "a line break in a name": (
        {"name": ["a\nb", "c"]},
        r"column 'job': found 'a\nb', expected text without line breaks",
    ),
    "a bell in a user": (
        {"user": ["a\x07b", "c"]},
        r"column 'user': found 'a\x07b', expected text without line breaks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_make_trace_refuses(case: str) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(UserError) as refusal:
        a_trace(**changes)
    assert message in str(refusal.value)


@pytest.mark.parametrize("changes", [{"workers": [1]}, {"user": ["x"]}, {"minimum": [[1, 1]]}])
def test_columns_of_unequal_length_are_our_own_bug(changes: dict[str, Any]) -> None:
    with pytest.raises(Bug, match="make_trace"):
        a_trace(**changes)


@pytest.mark.parametrize("rows", [[1], np.array([1]), np.array([False, True])])
def test_taking_rows_keeps_their_submit_times(rows: Any) -> None:
    trace = a_trace(notices=["n."]).take(rows)
    assert (trace.name, trace.submit_seconds.tolist(), trace.notices) == (("b",), [5.0], ("n.",))


def test_elastic_bounds_are_multiples_of_what_was_asked_for() -> None:
    trace = a_trace(workers=[1, 100]).elastic(0.29, 2)
    assert trace.minimum.tolist() == [1, 29]
    assert trace.maximum.tolist() == [2, 200]
    assert trace.workers.tolist() == [1, 100]


@pytest.mark.parametrize(("least", "most"), [(0, 2), (2, 4), (0.5, 0.9), (1, float("inf")), (float("nan"), 2)])
def test_elastic_refuses_multiples_that_exclude_what_was_asked_for(least: float, most: float) -> None:
    with pytest.raises(UserError, match="at most 1 and one of at least 1"):
        a_trace().elastic(least, most)


def test_numbered_names_sort_as_numbers_do() -> None:
    assert numbered_names(2) == ("job-00001", "job-00002")
    many = numbered_names(100_001)
    assert many[-1] == "job-100001"
    assert list(many) == sorted(many)
