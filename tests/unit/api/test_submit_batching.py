"""Submissions of many clients: stored together, each with its own outcome."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

import pytest

from sterna.api.problem_json import status_of
from sterna.api.submit_batching import SubmitBatcher
from sterna.errors import Bug, UserError
from sterna.service.requests import Submission, Submitted
from tests.fakes.cluster import FakeCluster
from tests.fakes.http_server import Reply, Served


def manifest(name: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"command": ["python", "train.py"], **spec},
    }


def submission(*manifests: object, key: str = "", cwd: str = "") -> Submission:
    return Submission(json.dumps(manifests).encode(), True, cwd, key, "me")


class BatchCluster(FakeCluster):
    """Stores several submissions at once, and counts the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    def submit_each(self, submissions: Sequence[Submission]) -> list[Submitted | UserError]:
        self.batches.append([each.key for each in submissions])
        outcomes: list[Submitted | UserError] = []
        for each in submissions:
            try:
                outcomes.append(self.submit(each))
            except UserError as error:
                outcomes.append(error)
        return outcomes


def outcome_of(outcome: Submitted | BaseException) -> object:
    if isinstance(outcome, Submitted):
        return [job.name for job in outcome.jobs]
    return status_of(outcome) if isinstance(outcome, UserError) else type(outcome).__name__


@pytest.mark.parametrize("kind", [FakeCluster, BatchCluster])
def test_each_submission_of_a_batch_has_its_own_outcome(kind: type[FakeCluster]) -> None:
    cluster = kind()
    submissions = [
        submission(manifest("a"), manifest("b")),
        submission(manifest("wrong", comand=1)),
        Submission(b"{nope", True),
        submission(manifest("c"), cwd="not/a/full/path"),
        submission(manifest("huge", resources={"cpu": 64})),
        submission({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}),
        submission(manifest("d")),
    ]

    async def submit_all() -> list[Submitted | BaseException]:
        batcher = SubmitBatcher(cluster)
        return await asyncio.gather(*map(batcher.submit, submissions), return_exceptions=True)

    assert [outcome_of(each) for each in asyncio.run(submit_all())] == [["a", "b"], 422, 400, 422, 422, [], ["d"]]
    assert sorted(cluster.views) == ["a", "b", "d"]
    again = asyncio.run(_outcome(cluster, submission(manifest("a"))))
    assert outcome_of(again) == 409


async def _outcome(cluster: FakeCluster, one: Submission) -> Submitted | BaseException:
    (outcome,) = await asyncio.gather(SubmitBatcher(cluster).submit(one), return_exceptions=True)
    return outcome


def test_submissions_that_arrive_together_are_stored_together() -> None:
    cluster = BatchCluster()

    async def flood() -> list[Submitted]:
        batcher = SubmitBatcher(cluster)
        return await asyncio.gather(*(batcher.submit(submission(manifest(f"j{n}"), key=f"k{n}")) for n in range(20)))

    assert [made.jobs[0].name for made in asyncio.run(flood())] == [f"j{n}" for n in range(20)]
    assert cluster.batches == [[f"k{n}" for n in range(20)]]


def test_submissions_after_a_batch_are_stored_too() -> None:
    cluster = BatchCluster()

    async def one_after_the_other() -> list[str]:
        batcher = SubmitBatcher(cluster)
        return [(await batcher.submit(submission(manifest(name)))).jobs[0].name for name in "abc"]

    assert asyncio.run(one_after_the_other()) == ["a", "b", "c"]
    assert len(cluster.batches) == 3


def test_bug_reaches_every_client_of_the_batch_and_the_next_batch_succeeds() -> None:
    class Broken(BatchCluster):
        def submit_each(self, submissions: Sequence[Submission]) -> list[Submitted | UserError]:
            if not self.batches:
                self.batches.append([])
                raise Bug("something that cannot be")
            return super().submit_each(submissions)

    async def flood() -> list[Submitted | BaseException]:
        batcher = SubmitBatcher(Broken())
        first = await asyncio.gather(*(batcher.submit(submission(manifest(n))) for n in "ab"), return_exceptions=True)
        return [*first, await batcher.submit(submission(manifest("c")))]

    assert [outcome_of(each) for each in asyncio.run(flood())] == ["Bug", "Bug", ["c"]]


def test_clients_that_submit_at_once_each_get_their_own_response(api: Served) -> None:
    replies: dict[int, Reply] = {}

    def ask(number: int) -> None:
        replies[number] = api.ask("POST", "/api/v1/jobs", manifest("taken" if number % 4 == 0 else f"j{number}"))

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sorted(replies[number].status for number in range(0, 16, 4)) == [201, 409, 409, 409]
    assert {replies[number].status for number in range(16) if number % 4} == {201}
    assert len(api.cluster.views) == 13
