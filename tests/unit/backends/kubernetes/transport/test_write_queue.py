"""Order of writes: urgent ones first, some slots reserved for status, at most one in flight per object."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.resources import Urgency, Verb, Write
from sterna.backends.kubernetes.transport.write_queue import (
    PendingWrite,
    WriteEffect,
    WriteQueue,
    backoff_seconds,
    write_effect,
)
from sterna.kinds.resource import PODS


def a_write(name: str, urgency: Urgency = Urgency.RUN, slot: str = "") -> Write:
    return Write(Verb.MERGE, PODS, "default", name, urgency=urgency, slot=slot)


def pop_all(queue: WriteQueue, now: float = 0.0) -> list[PendingWrite]:
    """Everything that may go now."""
    taken = []
    while (pending := queue.pop(now)) is not None:
        taken.append(pending)
    return taken


def names(taken: list[PendingWrite]) -> list[str]:
    return [pending.write.name for pending in taken]


def test_the_urgent_go_first_and_equals_in_order() -> None:
    queue = WriteQueue(in_flight=10, reserved=0)
    for name, urgency in [("e", 3), ("s", 2), ("r1", 0), ("v", 1), ("r2", 0)]:
        queue.put(a_write(name, Urgency(urgency)), 0.0)
    assert names(pop_all(queue)) == ["r1", "r2", "v", "s", "e"]


def test_no_more_than_the_limit_is_in_flight() -> None:
    queue = WriteQueue(in_flight=3, reserved=0)
    for index in range(5):
        queue.put(a_write(str(index)), 0.0)
    first = pop_all(queue)
    assert names(first) == ["0", "1", "2"]
    assert (queue.in_flight, queue.size) == (3, 5)
    queue.finish(first[1])
    assert names(pop_all(queue)) == ["3"]


@pytest.mark.parametrize(
    ("runs", "others", "expected"),
    [
        pytest.param(40, 40, (28, 4), id="places are kept for the others"),
        pytest.param(40, 0, (32, 0), id="but not if none of them waits"),
        pytest.param(40, 2, (30, 2), id="nor more than are used"),
        pytest.param(0, 40, (0, 32), id="alone they take all"),
        pytest.param(5, 40, (5, 27), id="what runs comes first"),
    ],
)
def test_part_of_the_limit_is_reserved_for_status_writes(runs: int, others: int, expected: tuple[int, int]) -> None:
    queue = WriteQueue(in_flight=32, reserved=4)
    for index in range(others):
        queue.put(a_write(f"s{index}", Urgency.STATUS), 0.0)
    for index in range(runs):
        queue.put(a_write(f"r{index}"), 0.0)
    found = names(pop_all(queue))
    assert (sum(name[0] == "r" for name in found), sum(name[0] == "s" for name in found)) == expected


def test_reserved_part_of_the_limit_is_not_given_to_run_writes() -> None:
    queue = WriteQueue(in_flight=4, reserved=1)
    for index in range(8):
        queue.put(a_write(f"r{index}"), 0.0)
        queue.put(a_write(f"e{index}", Urgency.EVENT), 0.0)
    taken = pop_all(queue)
    assert names(taken) == ["r0", "r1", "r2", "e0"]
    queue.finish(taken[0])
    assert names(pop_all(queue)) == ["r3"]
    queue.finish(taken[3])
    assert names(pop_all(queue)) == ["e1"]


def test_a_few_verdicts_overtake_everything_and_statuses_do_not_hold_them_up() -> None:
    queue = WriteQueue(in_flight=8, reserved=2)
    for index in range(8):
        queue.put(a_write(f"s{index}", Urgency.STATUS), 0.0)
        queue.put(a_write(f"r{index}"), 0.0)
    taken = pop_all(queue)
    for index in range(3):
        queue.put(a_write(f"v{index}", Urgency.VERDICT), 0.0)
    for pending in taken[:3]:
        queue.finish(pending)
    assert names(pop_all(queue)) == ["v0", "v1", "r6"]


def test_of_a_slot_s_waiting_writes_only_the_latest_is_sent() -> None:
    queue = WriteQueue(in_flight=1, reserved=0)
    queue.put(a_write("other"), 0.0)
    [other] = pop_all(queue)
    first, second = a_write("first", Urgency.STATUS, "job"), a_write("second", Urgency.STATUS, "job")
    assert queue.put(first, 0.0) is None
    assert queue.put(second, 0.0) is first
    queue.finish(other)
    assert names(pop_all(queue)) == ["second"]


def test_a_slot_has_one_write_in_flight() -> None:
    queue = WriteQueue()
    queue.put(a_write("first", slot="job"), 0.0)
    [first] = pop_all(queue)
    queue.put(a_write("second", slot="job"), 0.0)
    queue.put(a_write("other", slot="another job"), 0.0)
    assert names(pop_all(queue)) == ["other"]
    assert queue.put(a_write("third", slot="job"), 0.0) is not None
    queue.finish(first)
    assert names(pop_all(queue)) == ["third"]


def test_a_verdict_takes_the_place_of_a_status_and_goes_before_others() -> None:
    queue = WriteQueue(in_flight=1, reserved=0)
    queue.put(a_write("busy"), 0.0)
    [busy] = pop_all(queue)
    queue.put(a_write("status of b", Urgency.STATUS, "b"), 0.0)
    queue.put(a_write("status of a", Urgency.STATUS, "a"), 0.0)
    queue.put(a_write("verdict of a", Urgency.VERDICT, "a"), 0.0)
    queue.put(a_write("later status of a", Urgency.STATUS, "a"), 0.0)
    order = []
    queue.finish(busy)
    while pending := queue.pop(0.0):
        order.append(pending.write.name)
        queue.finish(pending)
    assert order == ["later status of a", "status of b"]
    assert queue.size == 0


def test_rejected_write_backs_off_outside_the_limit_in_flight() -> None:
    queue = WriteQueue(in_flight=1, reserved=0)
    queue.put(a_write("first"), 0.0)
    queue.put(a_write("second"), 0.0)
    [first] = pop_all(queue)
    assert queue.retry(first, not_before=5.0) is None
    [second] = pop_all(queue)
    assert second.write.name == "second"
    assert queue.next_due == 5.0
    queue.finish(second)
    assert pop_all(queue, 4.9) == []
    [again] = pop_all(queue, 5.0)
    assert (again.write.name, again.tries) == ("first", 2)


def test_rejected_write_is_replaced_by_a_later_one_of_its_slot() -> None:
    queue = WriteQueue()
    queue.put(a_write("old", slot="job"), 0.0)
    [old] = pop_all(queue)
    queue.put(a_write("new", slot="job"), 0.0)
    assert queue.retry(old, 5.0) is old.write
    assert names(pop_all(queue)) == ["new"]
    assert queue.size == 1


def test_a_later_write_takes_the_place_of_one_that_waits_for_its_time() -> None:
    queue = WriteQueue()
    queue.put(a_write("old", slot="job"), 0.0)
    [old] = pop_all(queue)
    queue.retry(old, 5.0)
    assert queue.put(a_write("new", slot="job"), 1.0) is not None
    assert pop_all(queue, 1.0) == []
    assert names(pop_all(queue, 5.0)) == ["new"]


@pytest.mark.parametrize(
    ("status", "effect"),
    [
        (201, WriteEffect.FINAL),
        (404, WriteEffect.FINAL),
        (409, WriteEffect.FINAL),
        (429, WriteEffect.NONE),
        (503, WriteEffect.NONE),
        (500, WriteEffect.UNKNOWN),
        (502, WriteEffect.UNKNOWN),
        (504, WriteEffect.UNKNOWN),
    ],
)
def test_a_write_is_repeated_only_where_it_surely_was_not_done(status: int, effect: WriteEffect) -> None:
    assert write_effect(status) is effect


def test_pauses_double_are_jittered_and_bounded() -> None:
    assert [backoff_seconds(tries, 1.0, first=0.1, longest=1.0) for tries in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff_seconds(0, 0.0, first=0.1) == 0.05
    assert backoff_seconds(0, 0.0, at_least=3.0) == 3.0
    assert backoff_seconds(10_000, 1.0, longest=30.0) == 30.0
