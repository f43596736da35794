"""Results of a policy from a user's file are validated, and errors name that file."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sterna.engine.registry import Target
from sterna.engine.user_policy import UserPolicy
from sterna.errors import UserError
from sterna.model.snapshot import Snapshot
from tests.builders import a_job, a_snapshot, some_nodes

NOW = 10.0


@pytest.fixture
def snapshot() -> Snapshot:
    """Three jobs of 1 to 4 workers on four devices."""
    jobs = [a_job(name, (1, 4)) for name in ("a", "b", "c")]
    return a_snapshot(jobs, some_nodes(4), now=NOW)


def run_policy(answer: Any, snapshot: Snapshot) -> Target:
    def policy(_: Snapshot) -> Any:
        return answer() if callable(answer) else answer

    return UserPolicy(policy, "./mine.py:key=1", __file__)(snapshot)


def test_a_sound_answer_passes_as_it_is(snapshot: Snapshot) -> None:
    answer = Target(
        np.array([2, 0, 2], dtype=np.uint8), NOW + 1, np.zeros(3, dtype=np.bool_), lambda: np.arange(3)[::-1]
    )
    wish = run_policy(answer, snapshot)
    assert wish.order is not None
    assert wish.order().tolist() == [2, 1, 0]
    assert wish.workers.tolist() == [2, 0, 2]
    assert wish.workers.dtype == np.int64
    assert wish.until == NOW + 1


# Some are of the wrong type on purpose: a user's file is not checked by mypy.
WRONG = [
    (5, "answers with int; it must be a Target."),
    (Target(np.array([1])), "gives workers of the shape (1,); it must be one number for each of 3 jobs."),
    (Target(np.array([1.0, 0, 0])), "gives workers of the type float64; they must be whole numbers"),
    (Target(np.array([True, False, False])), "gives workers of the type bool"),
    (Target([[1], [1, 2], 0]), "gives workers that are no array"),  # type: ignore[arg-type]
    (Target(np.array([0, 5, 0])), "gives b 5 workers; it must be 0 or from 1 to 4."),
    (Target(np.array([-1, 0, 0])), "gives a -1 workers"),
    (Target(np.array([3, 1, 1])), "gives away 5000 units of 4000"),
    (Target(np.array([1, 0, 0]), -5.0), "is to be asked again at -5.0; it must be a number after 10, the time now."),
    (Target(np.array([1, 0, 0]), NOW), "asked again at 10.0"),
    (Target(np.array([1, 0, 0]), math.nan), "asked again at nan"),
    (Target(np.array([1, 0, 0]), None), "asked again at None"),  # type: ignore[arg-type]
    (Target(np.array([1, 0, 0]), promoted=np.array([True])), "gives promotions of the shape (1,)"),
    (Target(np.array([1, 0, 0]), order=lambda: np.array([0, 1])), "must hold each row from 0 to 2 once"),
    (Target(np.array([1, 0, 0]), order=lambda: np.array([0, 1, 1])), "must hold each row from 0 to 2 once"),
    (Target(np.array([1, 0, 0]), order=lambda: np.array([0.0, 1, 2])), "must hold each row from 0 to 2 once"),
    (Target(np.array([1, 0, 0]), order=lambda: 1 / 0), "failed (ZeroDivisionError"),  # type: ignore[arg-type,return-value]
]


@pytest.mark.parametrize(("answer", "sentence"), WRONG, ids=[sentence[:40] for _, sentence in WRONG])
def test_an_answer_that_no_policy_may_give_is_blamed_on_the_file(
    snapshot: Snapshot, answer: Any, sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        run_policy(answer, snapshot)
    assert str(refused.value).startswith("The policy './mine.py:key=1' ")
    assert sentence in str(refused.value)


def test_a_job_for_which_there_is_no_room_may_only_have_nothing(snapshot: Snapshot) -> None:
    held = replace(snapshot, jobs=snapshot.jobs.with_max_workers(np.array([0, 4, 4])))
    with pytest.raises(UserError, match="gives a 1 worker; it must be 0, as there is no room for it"):
        run_policy(Target(np.array([1, 0, 0])), held)


def test_a_policy_that_exits_the_program_is_reported_with_its_line(snapshot: Snapshot) -> None:
    def leave() -> None:
        int("1")
        raise SystemExit(3)

    with pytest.raises(UserError, match=r"failed \(SystemExit: 3, .*test_user_policy\.py, line \d+\)"):
        run_policy(leave, snapshot)


def test_the_reported_line_is_the_users_own(snapshot: Snapshot) -> None:
    with pytest.raises(UserError, match=r"failed \(.*test_user_policy\.py, line \d+\)"):
        run_policy(lambda: np.zeros(3).reshape(2, 2).take([0]), snapshot)


def test_jobs_may_keep_their_units_after_a_node_is_lost(snapshot: Snapshot) -> None:
    short = replace(snapshot, free_units=-1000, held_units=3000)
    assert run_policy(Target(np.array([1, 1, 1])), short).workers.tolist() == [1, 1, 1]
