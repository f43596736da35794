"""Which write goes next: the urgent first, a few places kept for what people wait to read, one at a time in a slot."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.resources import Urgency, Verb, Write
from sterna.backends.kubernetes.transport.write_queue import Fate, Outbox, Ticket, fate_of, pause_seconds
from sterna.kinds.resource import PODS


def a_write(name: str, urgency: Urgency = Urgency.RUN, slot: str = "") -> Write:
    return Write(Verb.MERGE, PODS, "default", name, urgency=urgency, slot=slot)


def sent(outbox: Outbox, now: float = 0.0) -> list[Ticket]:
    """Everything that may go now."""
    tickets = []
    while (ticket := outbox.next(now)) is not None:
        tickets.append(ticket)
    return tickets


def names(tickets: list[Ticket]) -> list[str]:
    return [ticket.write.name for ticket in tickets]


def test_the_urgent_go_first_and_equals_in_order() -> None:
    outbox = Outbox(in_flight=10, kept=0)
    for name, urgency in [("e", 3), ("s", 2), ("r1", 0), ("v", 1), ("r2", 0)]:
        outbox.put(a_write(name, Urgency(urgency)), 0.0)
    assert names(sent(outbox)) == ["r1", "r2", "v", "s", "e"]


def test_no_more_than_the_limit_is_in_flight() -> None:
    outbox = Outbox(in_flight=3, kept=0)
    for index in range(5):
        outbox.put(a_write(str(index)), 0.0)
    first = sent(outbox)
    assert names(first) == ["0", "1", "2"]
    assert (outbox.in_flight, outbox.size) == (3, 5)
    outbox.done(first[1])
    assert names(sent(outbox)) == ["3"]


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
def test_a_few_places_are_kept_for_what_somebody_waits_to_read(
    runs: int, others: int, expected: tuple[int, int]
) -> None:
    outbox = Outbox(in_flight=32, kept=4)
    for index in range(others):
        outbox.put(a_write(f"s{index}", Urgency.STATUS), 0.0)
    for index in range(runs):
        outbox.put(a_write(f"r{index}"), 0.0)
    found = names(sent(outbox))
    assert (sum(name[0] == "r" for name in found), sum(name[0] == "s" for name in found)) == expected


def test_kept_places_are_not_given_to_what_runs_while_others_wait() -> None:
    outbox = Outbox(in_flight=4, kept=1)
    for index in range(8):
        outbox.put(a_write(f"r{index}"), 0.0)
        outbox.put(a_write(f"e{index}", Urgency.EVENT), 0.0)
    tickets = sent(outbox)
    assert names(tickets) == ["r0", "r1", "r2", "e0"]
    outbox.done(tickets[0])
    assert names(sent(outbox)) == ["r3"]
    outbox.done(tickets[3])
    assert names(sent(outbox)) == ["e1"]


def test_a_few_verdicts_overtake_everything_and_statuses_do_not_hold_them_up() -> None:
    outbox = Outbox(in_flight=8, kept=2)
    for index in range(8):
        outbox.put(a_write(f"s{index}", Urgency.STATUS), 0.0)
        outbox.put(a_write(f"r{index}"), 0.0)
    tickets = sent(outbox)
    for index in range(3):
        outbox.put(a_write(f"v{index}", Urgency.VERDICT), 0.0)
    for ticket in tickets[:3]:
        outbox.done(ticket)
    assert names(sent(outbox)) == ["v0", "v1", "r6"]


def test_of_a_slot_s_waiting_writes_only_the_latest_is_sent() -> None:
    outbox = Outbox(in_flight=1, kept=0)
    outbox.put(a_write("other"), 0.0)
    [other] = sent(outbox)
    first, second = a_write("first", Urgency.STATUS, "job"), a_write("second", Urgency.STATUS, "job")
    assert outbox.put(first, 0.0) is None
    assert outbox.put(second, 0.0) is first
    outbox.done(other)
    assert names(sent(outbox)) == ["second"]


def test_a_slot_has_one_write_in_flight() -> None:
    outbox = Outbox()
    outbox.put(a_write("first", slot="job"), 0.0)
    [first] = sent(outbox)
    outbox.put(a_write("second", slot="job"), 0.0)
    outbox.put(a_write("other", slot="another job"), 0.0)
    assert names(sent(outbox)) == ["other"]
    assert outbox.put(a_write("third", slot="job"), 0.0) is not None
    outbox.done(first)
    assert names(sent(outbox)) == ["third"]


def test_a_verdict_takes_the_place_of_a_status_and_goes_before_others() -> None:
    outbox = Outbox(in_flight=1, kept=0)
    outbox.put(a_write("busy"), 0.0)
    [busy] = sent(outbox)
    outbox.put(a_write("status of b", Urgency.STATUS, "b"), 0.0)
    outbox.put(a_write("status of a", Urgency.STATUS, "a"), 0.0)
    outbox.put(a_write("verdict of a", Urgency.VERDICT, "a"), 0.0)
    outbox.put(a_write("later status of a", Urgency.STATUS, "a"), 0.0)
    order = []
    outbox.done(busy)
    while ticket := outbox.next(0.0):
        order.append(ticket.write.name)
        outbox.done(ticket)
    assert order == ["later status of a", "status of b"]
    assert outbox.size == 0


def test_what_was_turned_away_waits_for_its_time_and_leaves_its_place() -> None:
    outbox = Outbox(in_flight=1, kept=0)
    outbox.put(a_write("first"), 0.0)
    outbox.put(a_write("second"), 0.0)
    [first] = sent(outbox)
    assert outbox.again(first, not_before=5.0) is None
    [second] = sent(outbox)
    assert second.write.name == "second"
    assert outbox.next_due == 5.0
    outbox.done(second)
    assert sent(outbox, 4.9) == []
    [again] = sent(outbox, 5.0)
    assert (again.write.name, again.tries) == ("first", 2)


def test_what_was_turned_away_gives_way_to_a_later_write_of_its_slot() -> None:
    outbox = Outbox()
    outbox.put(a_write("old", slot="job"), 0.0)
    [old] = sent(outbox)
    outbox.put(a_write("new", slot="job"), 0.0)
    assert outbox.again(old, 5.0) is old.write
    assert names(sent(outbox)) == ["new"]
    assert outbox.size == 1


def test_a_later_write_takes_the_place_of_one_that_waits_for_its_time() -> None:
    outbox = Outbox()
    outbox.put(a_write("old", slot="job"), 0.0)
    [old] = sent(outbox)
    outbox.again(old, 5.0)
    assert outbox.put(a_write("new", slot="job"), 1.0) is not None
    assert sent(outbox, 1.0) == []
    assert names(sent(outbox, 5.0)) == ["new"]


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (201, Fate.KNOWN),
        (404, Fate.KNOWN),
        (409, Fate.KNOWN),
        (429, Fate.TURNED_AWAY),
        (503, Fate.TURNED_AWAY),
        (500, Fate.UNKNOWN),
        (502, Fate.UNKNOWN),
        (504, Fate.UNKNOWN),
    ],
)
def test_a_write_is_repeated_only_where_it_surely_was_not_done(status: int, fate: Fate) -> None:
    assert fate_of(status) is fate


def test_pauses_double_are_jittered_and_bounded() -> None:
    assert [pause_seconds(tries, 1.0, first=0.1, longest=1.0) for tries in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert pause_seconds(0, 0.0, first=0.1) == 0.05
    assert pause_seconds(0, 0.0, at_least=3.0) == 3.0
    assert pause_seconds(10_000, 1.0, longest=30.0) == 30.0
