"""The way in for new jobs: what comes together is stored together, and everybody is answered for themselves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

import pytest

from sterna.api.auth import Caller
from sterna.api.problem_json import Problem
from sterna.api.submit_batching import Created, Intake, Order, Submission, taken
from sterna.service.views import JobView
from sterna.errors import Bug, UserError
from tests.fakes.cluster import FakeCluster
from tests.fakes.http_server import Reply, Served

ME = Caller("me", True)


def manifest(name: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"command": ["python", "train.py"], **spec},
    }


def sent(*manifests: object, key: str = "", cwd: str = "", caller: Caller = ME) -> Submission:
    return Submission(json.dumps(manifests).encode(), "application/json", cwd, caller, key)


class ManyAtOnce(FakeCluster):
    """One that stores several orders at once, and counts how often it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def create_each(self, orders: Sequence[Order]) -> list[list[JobView] | UserError]:
        self.asked.append([key for _, key in orders])
        answers: list[list[JobView] | UserError] = []
        for specs, key in orders:
            try:
                answers.append(self.create(specs, key))
            except UserError as error:
                answers.append(error)
        return answers


def shown(outcome: Created | Exception) -> object:
    if isinstance(outcome, Created):
        return [job.name for job in outcome.jobs]
    return outcome.status if isinstance(outcome, Problem) else type(outcome).__name__


@pytest.mark.parametrize("kind", [FakeCluster, ManyAtOnce])
def test_what_is_wrong_with_one_does_not_concern_its_neighbours(kind: type[FakeCluster]) -> None:
    cluster = kind()
    submissions = [
        sent(manifest("a"), manifest("b")),
        sent(manifest("wrong", comand=1)),
        Submission(b"{nope", "application/json", "", ME),
        sent(manifest("a")),
        sent(manifest("c"), cwd="not/a/full/path"),
        sent(manifest("huge", resources={"cpu": 64})),
        sent({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}),
        sent(manifest("d")),
    ]
    outcomes = [shown(outcome) for outcome in taken(cluster, submissions)]
    assert outcomes == [["a", "b"], "UserError", 400, 409, 422, 422, [], ["d"]]
    assert sorted(cluster.views) == ["a", "b", "d"]


def test_what_comes_together_is_stored_together() -> None:
    cluster = ManyAtOnce()

    async def flood() -> list[Created]:
        intake = Intake(cluster)
        return await asyncio.gather(*(intake.take(sent(manifest(f"j{n}"), key=f"k{n}")) for n in range(20)))

    assert [made.jobs[0].name for made in asyncio.run(flood())] == [f"j{n}" for n in range(20)]
    assert cluster.asked == [[f"me/k{n}" for n in range(20)]]


def test_who_comes_later_is_taken_too() -> None:
    cluster = ManyAtOnce()

    async def one_after_the_other() -> list[str]:
        intake = Intake(cluster)
        return [(await intake.take(sent(manifest(name)))).jobs[0].name for name in "abc"]

    assert asyncio.run(one_after_the_other()) == ["a", "b", "c"]
    assert len(cluster.asked) == 3


def test_a_bug_is_told_to_everybody_who_waits_and_the_next_are_taken_again() -> None:
    class Broken(ManyAtOnce):
        def create_each(self, orders: Sequence[Order]) -> list[list[JobView] | UserError]:
            if not self.asked:
                self.asked.append([])
                raise Bug("something that cannot be")
            return super().create_each(orders)

    async def flood() -> list[Created | BaseException]:
        intake = Intake(Broken())
        first = await asyncio.gather(*(intake.take(sent(manifest(n))) for n in "ab"), return_exceptions=True)
        return [*first, await intake.take(sent(manifest("c")))]

    first, second, third = asyncio.run(flood())
    assert isinstance(first, Bug)
    assert isinstance(second, Bug)
    assert isinstance(third, Created)


def test_two_users_may_have_the_same_idea_of_a_key() -> None:
    cluster = FakeCluster()
    other = Caller("other", False)
    outcomes = taken(cluster, [sent(manifest("a"), key="1"), sent(manifest("b"), key="1", caller=other)])
    assert [shown(outcome) for outcome in outcomes] == [["a"], ["b"]]


def test_many_clients_at_once_are_each_answered_for_themselves(api: Served) -> None:
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
