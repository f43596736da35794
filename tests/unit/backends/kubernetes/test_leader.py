"""At most one operator leads at a time, despite clock skew, pauses and lost requests (DRAGON-51)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from sterna.apps.operator import TAKING_OVER_SECONDS
from sterna.backends.kubernetes.api.resources import LEASES, Followed, Verb, Write, WriteResult
from sterna.backends.kubernetes.leader import ADDRESS, Leadership, LeaseTimes
from sterna.errors import Retry
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from sterna.settings import LeaseSettings
from tests.fakes.kube import FakeKube
from tests.fakes.kube_client import FakeClient, Faults


class Candidate:
    """An operator that stands for the Lease on virtual time, and may be paused or have a clock of its own."""

    def __init__(self, kube: FakeKube, name: str, wall: Callable[[], float] | None = None) -> None:
        self.kube, self.name = kube, name
        self.lost = 0
        self.paused_until = 0.0
        self.is_over, self.is_alive = False, True
        self.leadership = Leadership(
            kube.client(identity=name),
            "default",
            "sterna",
            name,
            f"{name}:8769",
            on_lost=self._count,
            is_alive=lambda: self.is_alive,
            steady=kube.clock,
            wall=wall or kube.clock,
            draw=kube.luck.random,
        )
        kube.call_in(0.0, self._step)

    @property
    def leads(self) -> bool:
        """Result of `may_write` now, which a paused process does not call."""
        return self.leadership.may_write()

    def _step(self) -> None:
        if self.is_over or self.leadership.is_lost:
            return
        if self.kube.now < self.paused_until:
            self.kube.call_at(self.paused_until, self._step)
            return
        self.kube.call_in(self.leadership.step(), self._step)

    def _count(self) -> None:
        self.lost += 1


def lease_of(kube: FakeKube) -> dict[str, Any]:
    return kube.get(LEASES, "sterna")


def seconds_until(kube: FakeKube, fact: Callable[[], bool], limit: float = 60.0) -> float:
    began = kube.now
    while not fact():
        assert kube.now < began + limit, "it never came to that"
        kube.advance(0.25)
    return kube.now - began


def test_first_replica_leads_at_once_and_publishes_its_address() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(0.1)
    assert first.leads
    lease = lease_of(kube)
    assert lease["spec"]["holderIdentity"] == "a"
    assert lease["spec"]["leaseDurationSeconds"] == 15
    assert lease["metadata"]["annotations"][ADDRESS] == "a:8769"


def test_the_second_stands_by_while_the_first_renews() -> None:
    kube = FakeKube()
    first, second = Candidate(kube, "a"), Candidate(kube, "b")
    kube.advance(300.0)
    assert (first.leads, second.leads) == (True, False)
    assert second.leadership.holder == "a"
    assert lease_of(kube)["spec"]["leaseTransitions"] == 0


def test_the_second_takes_over_within_twenty_seconds_of_a_crash() -> None:
    kube = FakeKube()
    first, second = Candidate(kube, "a"), Candidate(kube, "b")
    kube.advance(30.0)
    first.is_over = True
    assert 10.0 < seconds_until(kube, lambda: second.leads) <= 20.0
    assert lease_of(kube)["spec"]["leaseTransitions"] == 1
    assert not first.leads


@pytest.mark.parametrize("late", [0.1 * step for step in range(25)])
@pytest.mark.parametrize("draws", [[0.0], [1.0], [0.353] * 7 + [1.0]], ids=["often", "seldom", "just too early"])
def test_however_unluckily_a_leader_dies_another_one_decides_within_twenty_seconds(
    late: float, draws: list[float]
) -> None:
    """With the usual times, from the last renewal on; what a replica that takes over waits for comes on top."""
    kube, usual, drawn = FakeKube(), LeaseSettings(), itertools.cycle(draws)
    times = LeaseTimes(int(usual.duration_seconds), usual.renew_seconds, usual.retry_seconds)
    dead, second = (
        Leadership(kube.client(), "default", "sterna", name, times=times, steady=kube.clock, draw=lambda: next(drawn))
        for name in "ab"
    )
    dead.step()
    began, at = kube.now, kube.now + late
    while not second.may_write():
        kube.advance(at - kube.now)
        at = kube.now + second.step()
    assert usual.duration_seconds <= kube.now - began
    assert kube.now - began + TAKING_OVER_SECONDS <= 20.0


def test_one_that_stands_by_knows_where_the_leader_answers_as_long_as_there_is_one() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(1.0)
    second = Candidate(kube, "b")
    kube.advance(5.0)
    assert (first.leadership.leader_address, second.leadership.leader_address) == ("", "http://a:8769")
    first.is_over = second.is_over = True  # or the second would take the Lease
    kube.advance(8.0)
    assert second.leadership.leader_address == "http://a:8769"
    kube.advance(10.0)
    assert second.leadership.leader_address == ""


def test_the_second_takes_over_at_once_from_one_that_resigned() -> None:
    kube = FakeKube()
    first, second = Candidate(kube, "a"), Candidate(kube, "b")
    kube.advance(30.0)
    first.leadership.resign()
    assert not first.leads
    assert seconds_until(kube, lambda: second.leads) <= 3.0
    assert first.lost == 0


def test_a_restarted_container_finds_its_lease_again() -> None:
    kube = FakeKube()
    first = Candidate(kube, "pod")
    kube.advance(30.0)
    first.is_over = True
    again = Candidate(kube, "pod")
    kube.advance(0.5)
    assert again.leads


def test_a_paused_process_leads_no_more_when_it_wakes() -> None:
    kube = FakeKube()
    first, second = Candidate(kube, "a"), Candidate(kube, "b")
    kube.advance(30.0)
    first.paused_until = kube.now + 40.0
    kube.advance(39.0)
    assert (first.leads, second.leads) == (False, True)
    kube.advance(10.0)
    assert first.leadership.is_lost
    assert first.lost == 1


def test_a_leader_stops_by_itself_ten_seconds_after_its_last_renewal() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(30.0)
    kube.faults = Faults(refused_ask=1.0)
    assert 7.0 < seconds_until(kube, lambda: not first.leads) <= 10.25
    kube.advance(3.0)
    assert first.lost == 1
    assert "API server" in first.leadership.last_error


def test_short_outage_does_not_change_the_leader() -> None:
    kube = FakeKube()
    first, second = Candidate(kube, "a"), Candidate(kube, "b")
    kube.advance(30.0)
    kube.faults = Faults(refused_ask=1.0)
    kube.advance(7.0)
    kube.heal()
    kube.advance(60.0)
    assert (first.leads, second.leads, first.lost) == (True, False, 0)


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0], ids=["back a day", "forward a day"])
def test_wall_clocks_may_differ_and_jump(step: float) -> None:
    kube = FakeKube()
    skew = 0.0
    first = Candidate(kube, "a", wall=lambda: kube.now + skew)
    second = Candidate(kube, "b", wall=lambda: kube.now - 3600.0)
    kube.advance(30.0)
    skew = step
    kube.advance(60.0)
    assert (first.leads, second.leads) == (True, False)
    first.is_over = True
    assert 10.0 < seconds_until(kube, lambda: second.leads) <= 20.0


def test_a_leader_that_finds_another_in_its_place_stops_at_once() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(10.0)
    kube.patch(LEASES, "sterna", {"spec": {"holderIdentity": "b"}})
    kube.advance(2.1)
    assert not first.leads
    assert first.lost == 1


def test_deleted_lease_is_created_again() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(10.0)
    kube.delete(LEASES, "sterna")
    kube.advance(5.0)
    assert first.leads
    assert lease_of(kube)["spec"]["holderIdentity"] == "a"


def test_foreign_annotations_of_the_lease_stay() -> None:
    kube = FakeKube()
    Candidate(kube, "a")
    kube.advance(5.0)
    kube.patch(LEASES, "sterna", {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}})
    kube.advance(20.0)
    meta = lease_of(kube)["metadata"]
    assert meta["labels"] == {"team": "x"}
    assert meta["annotations"] == {"note": "y", ADDRESS: "a:8769"}


def test_annotations_of_the_holder_go_when_it_resigns() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    first.leadership.notes = {"sterna.dev/rules": "fifo"}
    kube.advance(20.0)
    assert lease_of(kube)["metadata"]["annotations"]["sterna.dev/rules"] == "fifo"
    first.leadership.resign()
    assert lease_of(kube)["metadata"].get("annotations", {}) == {}


@pytest.mark.parametrize("seed", range(40))
def test_never_two_lead_at_once_and_one_leads_when_all_is_well(seed: int) -> None:
    kube = FakeKube(seed, Faults(refused_ask=0.3))
    candidates = [Candidate(kube, name) for name in "abc"]
    for count in range(300):
        kube.advance(kube.luck.uniform(0.1, 1.0))
        leaders = [each.name for each in candidates if each.leads]
        assert len(leaders) <= 1, leaders
        if count % 40 == 20:
            kube.luck.choice(candidates).paused_until = kube.now + kube.luck.uniform(1.0, 40.0)
        for index, each in enumerate(candidates):
            if each.leadership.is_lost:
                candidates[index] = Candidate(kube, each.name + "'")
    kube.heal()
    kube.advance(60.0)
    candidates = [Candidate(kube, each.name + "'") if each.leadership.is_lost else each for each in candidates]
    kube.advance(30.0)
    assert sum(each.leads for each in candidates) == 1


def test_a_straggler_s_write_is_not_sent_and_one_under_way_meets_the_fence() -> None:
    kube = FakeKube(faults=Faults(answer_seconds=(1.0, 1.0)))
    kube.fence = ("default", "sterna")
    first = Candidate(kube, "a")
    kube.advance(5.0)
    server, inbox = kube.client(first.leadership.may_write, identity="a"), kube.inbox()
    server.follow([Followed(PODS, Pod)], inbox)
    body = json.dumps({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).encode()
    write = Write(Verb.CREATE, PODS, "default", "p", body)
    server.send([write])
    kube.patch(LEASES, "sterna", {"spec": {"holderIdentity": "b"}})
    kube.advance(3.0)
    server.send([write])
    kube.advance(3.0)
    answers = [each for each in inbox.take() if isinstance(each, WriteResult)]
    assert [(each.status, each.reason) for each in answers] == [(403, "Forbidden"), (403, "NotLeader")]
    assert kube.items(PODS) == []


def test_missing_permission_is_named_and_granted_later() -> None:
    kube = FakeKube()
    kube.rest.forbidden = lambda seen: seen.resource == LEASES
    first = Candidate(kube, "a")
    kube.advance(5.0)
    assert "grant get, create and update on leases" in first.leadership.last_error
    kube.rest.forbidden = lambda seen: False
    kube.advance(5.0)
    assert first.leads
    assert first.leadership.last_error == ""


def test_missing_namespace_is_named_in_a_sentence() -> None:
    kube = FakeKube()
    leadership = Leadership(kube.client(), "nowhere", "sterna", "a", steady=kube.clock, wall=kube.clock)
    leadership.step()
    assert "no namespace 'nowhere'" in leadership.last_error


def test_on_a_thread_it_leads_and_leaves_nothing_behind() -> None:
    kube = FakeKube()
    leadership = Leadership(kube.client(), "default", "sterna", "a")
    leadership.start()
    assert leadership.wait(10.0)
    leadership.stop()
    assert not leadership.may_write()
    assert "holderIdentity" not in lease_of(kube)["spec"]


def test_a_closed_client_is_trouble_and_no_crash() -> None:
    kube = FakeKube()
    client: FakeClient = kube.client()
    client.close()
    with pytest.raises(Retry):
        client.ask("GET", "/version")
    leadership = Leadership(client, "default", "sterna", "a", steady=kube.clock)
    leadership.step()
    assert leadership.last_error


def test_replica_whose_loop_hangs_loses_the_lease_to_one_whose_loop_runs() -> None:
    kube = FakeKube()
    first = Candidate(kube, "a")
    kube.advance(1.0)
    second = Candidate(kube, "b")
    first.is_alive = False
    kube.advance(7.0)
    assert first.leads, "until the renew deadline"
    assert "makes no progress" in first.leadership.last_error
    seconds_until(kube, lambda: second.leads)
    assert not first.leads
    assert first.lost == 1


def test_replica_whose_loop_hangs_does_not_take_the_lease() -> None:
    kube = FakeKube()
    only = Candidate(kube, "a")
    only.is_alive = False
    kube.advance(30.0)
    assert not only.leads
    only.is_alive = True
    kube.advance(5.0)
    assert only.leads
