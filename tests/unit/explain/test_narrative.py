"""Stories out of small journals: each kind of sentence, what would start a job that waits, and history asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.control.journal import JournalWriter, read_round, read_rounds
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import decide
from sterna.errors import UserError
from sterna.explain.counterfactual import decision_that_starts, with_devices, with_values, without
from sterna.explain.formatting import duration
from sterna.explain.narrative import explain
from sterna.explain.whatif import whatif
from sterna.model.plan import ActionKind
from sterna.wiring import make_rules
from tests.builders import SOMEWHERE, AJob, a_job, a_node, a_snapshot, decided, some_nodes
from tests.simulation.runs import a_workload

Record = Callable[..., SimulatedBackend]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def record(journal: Path) -> Record:
    """Let jobs run in a simulated world and keep every round."""

    def run(
        jobs: Sequence[AJob],
        nodes: str = "1x4",
        policy: str = "fifo",
        placement: str = "stay",
        costs: Costs | None = None,
        faults: Sequence[Fault] = (),
    ) -> SimulatedBackend:
        backend = SimulatedBackend(
            a_workload(jobs), simulated_nodes(nodes), SimulationConfig(costs=costs or Costs(), faults=faults)
        )
        with JournalWriter(journal, policy=policy, placement=placement, overwrite=True) as writer:
            RoundLoop(backend, make_rules(policy, placement), (writer,)).run()
        return backend

    return run


def told(journal: Path, job: str, **where: Any) -> list[tuple[float, str]]:
    answer: Any = explain(journal, job, **where)
    return [(event["at_s"], event["sentence"]) for event in answer["events"]]


def changes(journal: Path, job: str, **where: Any) -> dict[str, Any]:
    answer: Any = explain(journal, job, **where)
    assert answer["state"] == "waits"
    return {change["change"]: (change["amount"], change["sentence"]) for change in answer["changes"]}


# The story.


def test_a_job_is_submitted_waits_starts_and_ends(record: Record, journal: Path) -> None:
    record([a_job("a", 4, submit=5, remaining=400), a_job("b", 2, submit=15, remaining=20, priority=-1)])
    assert told(journal, "b") == [
        (10, "submitted: asks for 2 workers, priority -1."),
        (10, "waited 90 s: 2 more devices needed."),
        (100, "started with 2 workers on node0."),
        (110, "ended 100 s after it was submitted, of which it waited 90 s."),
    ]


def test_a_job_shrinks_for_another_and_grows_again(record: Record, journal: Path) -> None:
    record([a_job("a", (1, 4), remaining=800), a_job("b", 2, submit=50, remaining=20)], policy="elastic-fifo")
    assert told(journal, "a")[:4] == [
        (0, "submitted: asks for 1 worker (1 to 4 possible)."),
        (0, "started with 4 workers on node0."),
        (50, "shrank from 4 to 2 workers to make room for b; now on node0."),
        (60, "grew from 2 to 4 workers: devices were free; now on node0."),
    ]


def test_wait_between_two_rounds_is_part_of_the_story(record: Record, journal: Path) -> None:
    record([a_job("a", 4, remaining=4000), a_job("b", 4, submit=10, remaining=40)], policy="srjf")
    assert told(journal, "a")[2:] == [
        (10, "stopped with 4 workers to make room for b, which goes first under this policy."),
        (10, "waited 10 s."),
        (20, "started with 4 workers on node0."),
        (1010, "ended 16 min 50 s after it was submitted, of which it waited 10 s."),
    ]


def test_workers_on_two_nodes_are_counted_by_node(record: Record, journal: Path) -> None:
    record([a_job("a", 6, remaining=60)], "2x4")
    assert told(journal, "a")[1] == (0, "started with 6 workers on node0 (4), node1 (2).")


def test_where_devices_are_only_counted_no_node_is_named(record: Record, journal: Path) -> None:
    record([a_job("a", 3, remaining=60)], placement="none")
    assert told(journal, "a")[1] == (0, "started with 3 workers.")


def test_story_names_a_lost_node_and_the_wait_for_it(record: Record, journal: Path) -> None:
    backend = record([a_job("a", 4, remaining=400)], faults=[Fault(0, 30, 50)])
    story = told(journal, "a")
    assert (30, "lost its 4 workers: node0 went away.") in story
    assert any(at == 30 and sentence.startswith("waited 50 s: cannot run") for at, sentence in story)
    assert story[-1] == (150, "ended 150 s after it was submitted, of which it waited 50 s.")
    assert backend.waited == [50]


def test_waits_for_the_same_kind_of_reason_are_one_sentence(record: Record, journal: Path) -> None:
    ahead = [a_job(name, 1, remaining=work) for name, work in (("a", 30), ("b", 60), ("c", 90), ("d", 120))]
    record([*ahead, a_job("big", 4, submit=1, remaining=4)], policy="fifo:preempt=false:backfill=false")
    assert told(journal, "big") == [
        (1, "submitted: asks for 4 workers."),
        (1, "waited 119 s: 4 more devices needed; at last 1 more device needed."),
        (120, "started with 4 workers on node0."),
        (121, "ended 120 s after it was submitted, of which it waited 119 s."),
    ]


def scattered() -> list[AJob]:
    """Two nodes of four devices, half free after 10 s, and a job that needs a whole one."""
    works = {"a": 20, "b": 400, "c": 20, "d": 400}
    return [
        *(a_job(name, 2, remaining=work) for name, work in works.items()),
        a_job("wide", 1, submit=1, remaining=4, devices=4),
    ]


def test_another_kind_of_reason_begins_another_wait(record: Record, journal: Path) -> None:
    record(scattered(), "2x4")
    assert told(journal, "wide")[1:4] == [
        (1, "waited 9 s: 4 more devices needed."),
        (
            10,
            "waited 190 s: 4 devices are free, but not where its 1 worker could be placed: both nodes have at most 2 "
            "free of the 4 devices it needs.",
        ),
        (200, "started with 1 worker on node0."),
    ]


def test_what_single_nodes_lack_may_change_within_one_wait(record: Record, journal: Path) -> None:
    """Six nodes with a small job each, and a job that needs three whole ones; two of the small ones end early."""
    small = [a_job(f"small{number}", remaining=work) for number, work in enumerate((20, 40, 60, 400, 400, 400))]
    record([*small, a_job("wide", 3, submit=1, remaining=30, devices=3)], "6x3", placement="spread")
    assert [(at, sentence.partition(":")[0]) for at, sentence in told(journal, "wide")[1:4]] == [
        (1, "waited 19 s"),
        (20, "waited 40 s"),
        (60, "started with 3 workers on node0 (1), node1 (1), node2 (1)."),
    ]
    assert told(journal, "wide")[2][1] == (
        "waited 40 s: there is room for 1 of its 3 workers: beside it, all 6 nodes have at most 2 free of the 3 "
        "devices it needs; at last there is room for 2 of its 3 workers: beside them, all 6 nodes have at most "
        "2 free of the 3 devices it needs."
    )


def test_story_names_the_new_node_of_a_move(record: Record, journal: Path) -> None:
    backend = record(scattered(), "2x4", placement="stay:repack=stuck")
    assert backend.counters.migrations == 1
    at, sentence = told(journal, "b")[2]
    assert (at, sentence[:15], sentence[-13:]) == (10, "moved 2 workers", "now on node1.")
    answer: Any = whatif(journal, "fifo", "stay")
    assert "b would have been kept at 2 workers on node0 where it was moved" in answer["differences"][0]["sentence"]
    assert answer["recorded_actions"]["migrations"] == 1


def test_a_story_can_end_earlier(record: Record, journal: Path) -> None:
    record([a_job("a", 4, remaining=400), a_job("b", 4, submit=10, remaining=40), a_job("c", submit=40, remaining=1)])
    assert told(journal, "a", at_seconds=50)[-1] == (40, "runs with 4 workers on node0.")
    assert told(journal, "b", at_seconds=50)[-1] == (10, "has waited 30 s: 4 more devices needed.")
    assert told(journal, "b", number=2) == told(journal, "b", at_seconds=50)
    answer: Any = explain(journal, "b", number=1)
    assert (answer["round"], answer["at_s"], answer["state"]) == (1, 10, "waits")


def test_story_says_why_a_job_never_fits(record: Record, journal: Path) -> None:
    record([a_job("a", 1, remaining=10), a_job("whale", (9, 9), remaining=10)])
    answer: Any = explain(journal, "whale")
    assert answer["state"] == "waits"
    assert "cannot run: it needs 9 workers at once" in answer["events"][-1]["sentence"]
    assert {change["change"]: change["amount"] for change in answer["changes"]} == {"devices": 5, "minimum": 4}


@pytest.mark.parametrize("policy", ["srjf", "elastic-tiresias", "dragon"])
def test_waits_of_a_story_add_up_to_the_simulated_wait(record: Record, journal: Path, policy: str) -> None:
    jobs = [a_job(f"j{n}", (1 + n % 3, 4), submit=7 * n, remaining=50 + 37 * (n * n % 11)) for n in range(12)]
    backend = record(jobs, "2x2", policy)
    for name, waited in zip(backend.jobs.name, backend.waited, strict=True):
        answer: Any = explain(journal, name)
        assert sum(event.get("wait_s", 0) for event in answer["events"]) == pytest.approx(waited)
        assert answer["events"][-1]["event"] == "ended"


# What would start it.


def waiting(**of_b: Any) -> list[AJob]:
    """One job that holds four devices, and one that wants two, with something changed about it."""
    return [a_job("a", 4, remaining=400), a_job("b", **{"size": 2, "submit": 10, "remaining": 2000, **of_b})]


def running(job: AJob, seconds: float) -> AJob:
    """Return the job on n0 after it ran this long with all its workers."""
    left = job.remaining - seconds * job.minimum
    return a_job(job.name, job.minimum, submit=job.submit, remaining=left, priority=job.priority, on={"n0": 4})


def test_the_devices_that_would_start_it_do_and_one_less_does_not(record: Record, journal: Path) -> None:
    a, b = waiting(size=3)
    record([a, b])
    assert changes(journal, "b", number=1)["devices"] == (3, "3 more devices would start it now.")
    for devices, workers in ((3, 3), (2, 0)):
        snapshot = a_snapshot([running(a, 10), b], some_nodes(4, devices), now=10)
        assert decided(snapshot).allocation["b"] == workers


def test_devices_that_are_only_counted_are_added_too(record: Record, journal: Path) -> None:
    record(waiting(size=3), placement="none")
    assert changes(journal, "b", number=1)["devices"][0] == 3
    on = a_job("a", 4, remaining=360, on={SOMEWHERE: 4})
    snapshot = a_snapshot([on, a_job("b", 3, submit=10)], 7, now=10)
    assert decided(snapshot, placement="none").allocation["b"] == 3


def test_many_devices_are_found_by_doubling(record: Record, journal: Path) -> None:
    jobs = [a_job("a", 4, remaining=400), a_job("big", 100, submit=1), a_job("b", 37, submit=10)]
    record(jobs, policy="fifo:preempt=false:backfill=false")
    found, _ = changes(journal, "b", number=2)["devices"]
    snapshot = read_round(journal, 2).snapshot
    rules = make_rules("fifo:preempt=false:backfill=false", "stay")
    row = [snapshot.jobs.name_of(row) for row in range(len(snapshot.jobs))].index("b")
    key = snapshot.jobs.key[row]
    assert found > 32
    assert decision_that_starts(with_devices(snapshot, row, found), key, rules)
    assert not decision_that_starts(with_devices(snapshot, row, found - 1), key, rules)


def test_a_job_with_a_selector_is_offered_devices_it_accepts() -> None:
    job = a_job("b", 2, selector={"kind": "new"})
    snapshot = a_snapshot([job], [a_node("n0", 4, taints=["mine"])])
    rules = make_rules("fifo", "stay")
    assert not decision_that_starts(snapshot, snapshot.jobs.key[0], rules)
    assert decision_that_starts(with_devices(snapshot, 0, 2), snapshot.jobs.key[0], rules)


def test_the_priority_that_would_start_it_is_the_nearest_one_that_does(record: Record, journal: Path) -> None:
    a, b = a_job("a", 4, remaining=400, priority=-2), a_job("b", 2, submit=10, remaining=2000, priority=-5)
    record([a, b])
    assert changes(journal, "b", number=1)["priority"] == (-1, "Priority -1 instead of -5 would start it now.")
    for priority, workers in ((-1, 2), (-2, 0)):
        changed = a_job("b", 2, submit=10, remaining=2000, priority=priority)
        assert decided(a_snapshot([running(a, 10), changed], 4, now=10)).allocation["b"] == workers


def test_no_priority_is_named_where_none_would_start_the_job(record: Record, journal: Path) -> None:
    record([a_job("a", 4, remaining=400), a_job("b", 8, submit=10)])
    assert "priority" not in changes(journal, "b", number=1)


def test_policies_that_would_start_it_are_named_with_those_they_would_stop(record: Record, journal: Path) -> None:
    a, b = waiting(remaining=50)
    record([a, b])
    names, sentence = changes(journal, "b", number=1)["policy"]
    assert "srjf" in names
    assert "fifo" not in names
    assert "srjf (stopping 1 job)" in sentence
    snapshot = a_snapshot([running(a, 10), b], 4, now=10)
    for name in ("srjf", "elastic-srjf", "tiresias", "ffdl", "afs-l", "elastic-fifo"):
        assert (decided(snapshot, name).allocation["b"] > 0) == (name in names), name


def test_the_largest_minimum_that_would_start_it_is_named(record: Record, journal: Path) -> None:
    jobs = [a_job("a", 1, remaining=400), a_job("b", 4, submit=10, remaining=40)]
    record(jobs)
    assert changes(journal, "b", number=1)["minimum"] == (3, "A minimum of 3 workers instead of 4 would start it now.")
    snapshot = a_snapshot([a_job("a", 1, remaining=390, on={"n0": 1}), a_job("b", (3, 4), submit=10)], 4, now=10)
    assert decided(snapshot).allocation["b"] == 3


def test_the_end_it_waits_for_is_the_one_after_which_it_does_start(record: Record, journal: Path) -> None:
    jobs = [a_job("a", 2, remaining=200), a_job("c", 2, remaining=100), a_job("b", 4, submit=10, remaining=40)]
    backend = record(jobs, policy="fifo:preempt=false")
    seconds, sentence = changes(journal, "b", number=1)["wait"]
    assert seconds == pytest.approx(90)
    assert sentence == "In 90 s at the earliest, when a, the last of 2 jobs, will have ended, it would start."
    assert backend.first_start[backend.jobs.name.index("b")] == pytest.approx(100)


def test_a_single_end_is_named_by_its_job(record: Record, journal: Path) -> None:
    record(waiting())
    _, sentence = changes(journal, "b", number=1)["wait"]
    assert sentence == "In 90 s at the earliest, when a will have ended, it would start."


def test_a_changed_instant_differs_in_nothing_else() -> None:
    jobs = [a_job("a", (1, 4), on={"n0": 2}, remaining=100), a_job("b", 2, submit=1), a_job("c", devices=0.5, submit=2)]
    snapshot = a_snapshot(jobs, some_nodes(2, 2), now=10)
    wider = with_devices(snapshot, 1, 3)
    assert (wider.free_units, wider.held_units) == (snapshot.free_units + 3000, snapshot.held_units)
    smaller = with_values(snapshot, 1, minimum=1)
    assert smaller.least_units == snapshot.least_units - 1000
    assert not smaller.is_rigid
    later = without(snapshot, (snapshot.jobs.workers > 0).nonzero()[0], 50)
    assert [later.jobs.name_of(row) for row in range(len(later.jobs))] == ["b", "c"]
    assert (later.now, later.free_units, later.held_units, dict(later.assignments)) == (60, 4000, 0, {})
    assert snapshot.jobs.minimum.tolist() == [1, 2, 1]


# What is refused.


def test_an_unknown_job_is_answered_with_the_nearest_name(record: Record, journal: Path) -> None:
    record([a_job("resnet"), a_job("bert")])
    with pytest.raises(UserError, match=r"tells of no job 'resnte': did you mean 'resnet'\?"):
        explain(journal, "resnte")


def test_of_many_jobs_only_some_are_listed(record: Record, journal: Path) -> None:
    record([a_job(f"job-{number:03}") for number in range(50)])
    with pytest.raises(UserError, match="it tells of 50 jobs, such as job-000, job-001, job-002"):
        explain(journal, "zzz")


def test_job_that_appears_later_is_an_error_that_names_the_round(record: Record, journal: Path) -> None:
    record(waiting())
    with pytest.raises(UserError, match="first tells of job 'b' in round 1, at 10 s; choose a later"):
        explain(journal, "b", number=0)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"at_seconds": 1.0, "number": 1}, "give one of them"),
        ({"at_seconds": -1.0}, "--at -1"),
        ({"at_seconds": float("nan")}, "--at nan"),
        ({"number": 99}, "has no round 99: it has rounds 0 to 3"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(
    record: Record, journal: Path, where: dict[str, Any], sentence: str
) -> None:
    record(waiting())
    with pytest.raises(UserError, match=sentence):
        explain(journal, "a", **where)


def test_a_damaged_journal_is_refused_with_file_and_line(record: Record, journal: Path) -> None:
    record(waiting())
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], b"{oh\n", *lines[3:]]))
    for ask, word in ((explain, "b"), (whatif, "srjf")):
        with pytest.raises(UserError, match=r"run\.jsonl', line 4: this is not a line of a journal"):
            ask(journal, word)


def test_a_journal_without_rounds_is_refused(journal: Path) -> None:
    with JournalWriter(journal, policy="fifo", placement="stay"):
        pass
    for ask, word in ((explain, "b"), (whatif, "srjf")):
        with pytest.raises(UserError, match="has no rounds"):
            ask(journal, word)


# History asked again.


def several() -> list[AJob]:
    return [a_job(f"j{n}", 1 + n % 4, submit=11 * n, remaining=100 + 90 * (n * n % 7)) for n in range(10)]


def test_the_same_rules_would_have_done_the_same(record: Record, journal: Path) -> None:
    record(several(), "2x2", "srjf", costs=Costs(restart_seconds=3), faults=[Fault(1, 40, 25)])
    answer: Any = whatif(journal, "srjf")
    assert answer["rounds_that_differ"] == 0
    assert answer["differences"] == []
    assert answer["recorded_actions"] == answer["actions"]
    again = answer["rerun"]
    assert again["recorded"] == again["rebuilt"] == again["policy"]
    assert (again["jobs"], answer["notices"]) == (10, [])


@pytest.mark.parametrize("policy", ["fifo:preempt=false", "elastic-srjf", "tiresias", "dragon"])
def test_a_rerun_gives_what_simulating_the_same_jobs_gives(record: Record, journal: Path, policy: str) -> None:
    backend = record(several(), "2x2", policy, "stay")
    means = sum(backend.finish) / 10 - 11 * 4.5, sum(backend.waited) / 10, backend.counters.preemptions
    record(several(), "2x2", "srjf")
    again: Any = whatif(journal, policy, "stay")["rerun"]
    found = tuple(again["policy"][key] for key in ("avg_jct_s", "avg_wait_s", "preemptions"))
    assert found == pytest.approx(means, abs=1e-3)


def test_rounds_that_differ_are_counted_and_the_first_three_described(record: Record, journal: Path) -> None:
    record([a_job("a", 4, remaining=4000), *(a_job(f"b{n}", 4, submit=10 + n, remaining=40) for n in range(4))])
    answer: Any = whatif(journal, "srjf")
    rules = make_rules("srjf", "stay")
    plans = [(round_.actions, tuple(decide(round_.snapshot, rules).plan)) for round_ in read_rounds(journal)]
    assert answer["rounds_that_differ"] == sum(then != now for then, now in plans)
    assert answer["actions"]["preemptions"] == sum(action.kind is ActionKind.STOP for _, now in plans for action in now)
    assert [difference["round"] for difference in answer["differences"]] == [1, 2, 3]
    first = "a would have been stopped where it was kept at 4 workers on node0, and 1 more job otherwise."
    assert answer["differences"][0] == {"round": 1, "at_s": 10, "sentence": first}
    assert answer["rerun"]["policy"]["avg_jct_s"] < answer["rerun"]["recorded"]["avg_jct_s"]


def test_differences_are_described_for_every_kind_of_change(record: Record, journal: Path) -> None:
    jobs = [a_job("a", (1, 4), remaining=800), a_job("b", 2, submit=50, remaining=20)]
    record(jobs, policy="elastic-fifo")
    rigid: Any = whatif(journal, "fifo")
    assert [difference["sentence"] for difference in rigid["differences"]] == [
        "a would have been started with 1 worker on node0 where it was started with 4 workers on node0.",
        "a would have been shrunk to 1 worker on node0 where it was shrunk to 2 workers on node0.",
        "a would have been shrunk to 1 worker on node0 where it was grown to 4 workers on node0.",
    ]


def test_jobs_that_had_not_ended_are_left_out_of_all_means_with_a_notice(record: Record, journal: Path) -> None:
    record(several(), "2x2")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-4]))
    answer: Any = whatif(journal, "srjf")
    left = 10 - answer["rerun"]["jobs"]
    assert left > 0
    assert answer["notices"][0].startswith(f"{left} job")
    assert "had not ended when the journal did" in answer["notices"][0]


def test_a_journal_that_begins_late_counts_from_its_start(record: Record, journal: Path) -> None:
    record(waiting())
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    answer: Any = whatif(journal, "srjf")
    assert "1 job came before the journal; counted from its start." in answer["notices"]
    assert told(journal, "a")[:2] == [
        (-10, "submitted: asks for 4 workers."),
        (0, "ran already with 4 workers on node0 when first seen."),
    ]


def test_costs_that_a_journal_does_not_hold_are_noticed(record: Record, journal: Path) -> None:
    record(several(), "2x2", "srjf", costs=Costs(checkpoint_seconds=20))
    answer: Any = whatif(journal, "fifo")
    assert any("the journal does not hold all costs" in notice for notice in answer["notices"])


def test_a_placement_that_only_counts_is_not_compared_with_one_that_places(record: Record, journal: Path) -> None:
    record(waiting())
    with pytest.raises(UserError, match="only one of them puts workers on nodes"):
        whatif(journal, "fifo", "none")
    record(waiting(), placement="none")
    assert whatif(journal, "dragon")["placement"] == "none"
    with pytest.raises(UserError, match="only one of them puts workers on nodes"):
        whatif(journal, "fifo", "pack")


def test_progress_is_reported_while_a_journal_is_read(record: Record, journal: Path) -> None:
    record([a_job(f"j{n}", submit=n, remaining=1.5) for n in range(120)])
    heard: list[tuple[int, int]] = []
    explain(journal, "j3", progress=lambda done, total: heard.append((done, total)))
    assert [done for done, _ in heard][:2] == [50, 100]
    assert all(done <= total for done, total in heard)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (12.34, "12.3 s"),
        (312, "312 s"),
        (600, "10 min"),
        (754.6, "12 min 35 s"),
        (7200, "2 h"),
        (11_100, "3 h 5 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words
