"""Metrics of a user's own: from a file or a decorator, in summaries and tables; mistakes are one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import sterna
from sterna import Result, UserError
from sterna.experiments.metrics import user_metric

TRACE = sterna.Trace.poisson(jobs=20, seed=1)
FILE = """
from sterna import Result, metric

@metric("late_share")
def late_share(result: Result) -> float:
    return {body}
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the registry of other tests as it is."""
    monkeypatch.setattr(user_metric, "_metrics", {})


def write(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(FILE.format(body=body), encoding="utf-8")
    return str(path)


def test_a_metric_of_a_file_is_in_the_summary_and_in_the_table_of_a_comparison(tmp_path: Path) -> None:
    path = write(tmp_path, "float((result.times.wait > 60).mean())")
    comparison = sterna.compare(TRACE, "1x8", "srjf", cores=1, metrics=[path])
    shares = comparison.table("columns")["late_share"]
    assert shares == [result.summary["late_share"] for result in comparison.results]
    assert all(0 <= share <= 1 for share in shares)


def test_a_metric_that_a_notebook_registers_works_by_its_name() -> None:
    @sterna.metric("jobs_twice")
    def jobs_twice(result: Result) -> float:
        return 2 * len(result.times.completion)

    assert sterna.simulate(TRACE, "1x8", "fifo", metrics=["jobs_twice"]).summary["jobs_twice"] == 40


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("1 / 0", "The metric 'late_share' fails with ZeroDivisionError"),
        ("'many'", "returns 'many'; it must return a finite number or None"),
        ("float('nan')", "returns nan; it must return a finite number"),
    ],
)
def test_a_mistake_in_a_metric_is_named(tmp_path: Path, body: str, sentence: str) -> None:
    result = sterna.simulate(TRACE, "1x8", "fifo", metrics=[write(tmp_path, body)])
    with pytest.raises(UserError, match=sentence):
        _ = result.summary


def test_files_that_are_missing_empty_or_broken_are_refused_before_the_run(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.py", tmp_path / "broken.py"
    empty.write_text("", encoding="utf-8")
    broken.write_text("import nothing_of_that_name", encoding="utf-8")
    for path, sentence in (
        (tmp_path / "missing.py", "there is no such file"),
        (empty, "it defines no metric; decorate a function"),
        (broken, "cannot be used as a metric: ModuleNotFoundError"),
        ("unknown", "metric unknown: there is no such metric"),
    ):
        with pytest.raises(UserError, match=sentence):
            sterna.simulate(TRACE, "1x8", "fifo", metrics=[str(path)])


def test_a_metric_may_not_take_the_name_of_a_built_in_number() -> None:
    sterna.metric("avg_jct_s")(lambda result: 1.0)
    result = sterna.simulate(TRACE, "1x8", "fifo", metrics=["avg_jct_s"])
    with pytest.raises(UserError, match="'avg_jct_s' has the name of a number that every result has"):
        _ = result.summary
