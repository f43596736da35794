"""The Voda study: its targets hold, and its table has the documented fields."""

from __future__ import annotations

import json

import pytest

from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Reproduction, Row
from sterna.experiments.reproduction.page import reproduction_page
from sterna.experiments.reproduction.studies import STUDIES, load_study, parse_study
from sterna.experiments.reproduction.voda.study import reproduce
from sterna.experiments.reproduction.voda.work import PUBLISHED

SEEDS = 3


@pytest.fixture(scope="module")
def study() -> Reproduction:
    return reproduce(SEEDS)


def rows(study: Reproduction, case: str) -> dict[str, Row]:
    return {row.metric: row for row in study.rows if row.case == case}


@pytest.mark.parametrize("algorithm", PUBLISHED)
def test_ours_is_no_worse_than_published(study: Reproduction, algorithm: str) -> None:
    """VODA-112."""
    found, published = rows(study, algorithm), PUBLISHED[algorithm]
    assert found["mean completion, s"].ours <= published.mean_seconds
    assert found["makespan, s"].ours <= published.makespan_seconds
    assert found["restarts by migration"].ours <= 6
    assert found["halts"].published == published.halts


@pytest.mark.parametrize("algorithm", PUBLISHED)
def test_ours_is_better_than_the_model_of_voda_on_unseen_arrivals(study: Reproduction, algorithm: str) -> None:
    found = rows(study, f"{algorithm}, unseen")
    assert found["mean completion, change in %"].ours < 0
    assert found["makespan, change in %"].ours < 0


def test_times_say_that_the_work_is_inferred_and_what_more_would_do(study: Reproduction) -> None:
    for algorithm in PUBLISHED:
        for metric in ("mean completion, s", "makespan, s"):
            row = rows(study, algorithm)[metric]
            assert "work inferred, with 5 % more " in row.note
            assert row.target_text.startswith("≤ ")


def test_every_target_that_does_not_depend_on_many_seeds_holds(study: Reproduction) -> None:
    assert [row for row in study.rows if row.holds is False and "unseen" not in row.case] == []


def test_running_it_again_gives_the_same_rows(study: Reproduction) -> None:
    assert reproduce(SEEDS).rows == study.rows


def test_progress_counts_seeds() -> None:
    heard: list[tuple[int, int]] = []
    reproduce(2, lambda done, total: heard.append((done, total)))
    assert heard == [(1, 2), (2, 2)]


def test_the_document_has_the_agreed_fields(study: Reproduction) -> None:
    document = json.loads(json.dumps(study.as_document(), allow_nan=False))
    assert document["name"] == "voda"
    assert {"case", "metric", "published", "target", "ours", "holds"} <= set(document["rows"][0])


def test_the_page_stands_alone_and_shows_every_figure(study: Reproduction) -> None:
    page = reproduction_page([study], "sterna reproduce voda")
    assert "<script src" not in page
    for figure in study.figures():
        assert figure.title in page
    assert page.count("plotly-graph-div") >= len(study.figures())


def test_every_listed_study_can_be_found() -> None:
    for name in parse_study("all"):
        assert callable(load_study(name))
    assert tuple(STUDIES) == tuple(parse_study("all"))


def test_an_interval_shrinks_with_seeds_and_holds_its_mean() -> None:
    few, many = interval_of([1.0, 2.0, 3.0]), interval_of([1.0, 2.0, 3.0] * 10)
    assert few.mean == many.mean == 2
    assert few.low < many.low < 2 < many.high < few.high
    assert (few.low, few.high) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert interval_of([4.0]).describe() == "one seed: no interval"
