"""If every job runs as its submitter, users may change their own jobs only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from sterna.api.auth import Caller
from sterna.api.problem_json import Problem
from sterna.api.responses import check_is_owner, check_may_change, check_may_read
from sterna.kinds.loading import load
from tests.fakes.cluster import FakeCluster
from tests.fakes.http_server import MANIFEST

ME, OWNER = Caller("me", False), Caller("root", True)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for name, user in (("mine", "me"), ("theirs", "them")):
        (spec,) = load(MANIFEST.replace("NAME", name), "x").jobs
        made.create([replace(spec, user=user)])
    return made


def status(function: Callable[[], object]) -> int:
    try:
        function()
    except Problem as problem:
        return problem.status
    return 200


@pytest.mark.parametrize(
    ("name", "caller", "expected"),
    [("mine", ME, 200), ("theirs", ME, 403), ("nobodys", ME, 404), ("theirs", OWNER, 200)],
)
def test_a_job_is_changed_and_its_output_read_by_its_submitter_and_by_the_owner(
    cluster: FakeCluster, name: str, caller: Caller, expected: int
) -> None:
    assert status(lambda: asyncio.run(check_may_change(cluster, name, caller))) == expected
    assert status(lambda: asyncio.run(check_may_read(cluster, name, caller))) == expected


def test_nodes_and_rules_are_the_owner_s() -> None:
    assert status(lambda: check_is_owner(ME)) == 403
    assert status(lambda: check_is_owner(OWNER)) == 200
