"""Knowledge of rules in simulations: never more than was observed by then, and no more wrong than configured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.knowledge import LEARNED, TRUE, Knowledge, KnowledgeSource, make_backend, parse_knowledge
from sterna.backends.simulated.learned_knowledge import LearningBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload
from sterna.control.round_loop import RoundLoop
from sterna.errors import UserError
from sterna.model.plan import Decision
from sterna.model.snapshot import Snapshot
from sterna.wiring import make_rules
from tests.builders import a_job
from tests.simulation.runs import a_workload

GOOD = (1.0, 1.9, 2.8, 3.6)
POOR = (1.0, 1.1, 1.15, 1.2)
CURVE_READERS = ("elastic-tiresias", "ffdl", "afs-l")
LENGTH_READERS = ("srjf", "elastic-srjf", "afs-l")


@dataclass
class Rounds:
    """Observer that records the knowledge and actions of each round."""

    known: list[tuple[float, list[float], list[list[float]], float]] = field(default_factory=list)
    """Time, remaining work and curve of each job, restart cost."""
    done: list[tuple[float, str, str, int]] = field(default_factory=list)

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        jobs = snapshot.jobs
        reach = int(jobs.maximum.max(initial=1))
        curves = snapshot.curves.table(reach)[jobs.curve, : reach + 1].tolist()
        self.known.append((snapshot.now, jobs.remaining.tolist(), curves, snapshot.restart_seconds))
        self.done += [
            (snapshot.now, action.kind.name, jobs.name_of(action.row), action.after.size) for action in decision.plan
        ]


def pairs(good: Sequence[str], work: float = 1000.0, other_work: float = 1000.0) -> Workload:
    """Four jobs of two categories; those in `good` have the good curve, the others the poor one."""
    jobs = [
        a_job(
            f"{category}{n}",
            (1, 4),
            submit=float(n),
            remaining=(work if category == "a" else other_work) * (1 + n / 10),
            speedup=GOOD if category in good else POOR,
        )
        for n in range(2)
        for category in "ab"
    ]
    workload = a_workload(jobs)
    return replace(workload, category=tuple(name[0] for name in workload.name))


def until_first_report(workload: Workload, policy: str, knowledge: Knowledge, seconds: float) -> Rounds:
    """Return the rounds before the first report."""
    backend, rounds = make_backend(knowledge, workload, simulated_nodes("1x5")), Rounds()
    controller = RoundLoop(backend, make_rules(policy, "stay"), (rounds,))
    controller.round()
    while backend.wait(seconds) and backend.now < seconds:
        controller.round()
    return rounds


@pytest.mark.parametrize("policy", CURVE_READERS)
def test_unreported_curves_change_no_decision(policy: str) -> None:
    worlds = pairs("a"), pairs("b")
    first, second = (until_first_report(each, policy, LEARNED, 2.0) for each in worlds)
    assert first.known == second.known
    assert first.done == second.done
    assert first.done
    open_book = [until_first_report(each, policy, TRUE, 2.0) for each in worlds]
    assert open_book[0].known != open_book[1].known, "the trap must be one"


@pytest.mark.parametrize("policy", ["ffdl", "afs-l"])
def test_the_trap_would_catch_a_policy_that_saw_the_truth(policy: str) -> None:
    first, second = (until_first_report(pairs(good), policy, TRUE, 2.0) for good in ("a", "b"))
    assert first.done != second.done


@pytest.mark.parametrize("policy", LENGTH_READERS)
def test_unreported_work_changes_no_decision(policy: str) -> None:
    """Twice the work in as many steps looks the same until a step is reported."""
    first, second = (
        until_first_report(pairs("ab", *work), policy, LEARNED, 2.0) for work in ((1000.0, 4000.0), (4000.0, 1000.0))
    )
    assert first.known == second.known
    assert first.done == second.done
    assert first.done


def test_sizes_that_never_ran_change_no_decision_in_a_whole_run() -> None:
    """Curves that agree on one and two workers, which no job exceeds."""
    runs = []
    for beyond in ((2.6, 3.3), (1.81, 1.82)):
        jobs = [a_job(f"j{n}", (1, 4), submit=7.0 * n, remaining=90.0, speedup=(1.0, 1.8, *beyond)) for n in range(6)]
        backend, rounds = LearningBackend(a_workload(jobs), simulated_nodes("1x2")), Rounds()
        RoundLoop(backend, make_rules("afs-l", "stay"), (rounds,)).run()
        runs.append(rounds)
    assert runs[0].known == runs[1].known
    assert runs[0].done == runs[1].done


def test_the_second_job_of_a_category_starts_with_what_the_first_taught() -> None:
    jobs = [a_job(name, 1, submit=at, remaining=300.0) for name, at in (("first", 0.0), ("second", 1000.0))]
    backend, rounds = LearningBackend(a_workload(jobs), simulated_nodes("1x1")), Rounds()
    RoundLoop(backend, make_rules("srjf", "stay"), (rounds,)).run()
    assert rounds.known[0][1] == pytest.approx([100.0])  # as many steps, each thought to take a second
    last_start = next(known for known in rounds.known if known[0] == 1000.0)
    assert last_start[1] == pytest.approx([300.0], rel=0.01)


def test_a_decision_in_the_middle_of_a_run_knows_what_was_reported_by_then() -> None:
    jobs = [a_job("long", 1, remaining=1000.0), a_job("late", 1, submit=499.0, remaining=1000.0)]
    backend = LearningBackend(a_workload(jobs), simulated_nodes("1x1"))
    RoundLoop(backend, make_rules("fifo", "stay")).round()
    backend.wait(float("inf"))
    left = backend.observe().jobs.remaining.tolist()
    assert left == pytest.approx([510.0, 1000.0], rel=0.01)  # steps of ten seconds: the fiftieth is not done yet
    record = backend.estimates.learned.records[0]
    assert record.steps == 32


def test_category_without_reports_is_taken_for_the_mean_of_the_others() -> None:
    workload = replace(
        a_workload([a_job("a", 1, remaining=900.0), a_job("b", 1, submit=950.0, remaining=50.0)]), category=("x", "y")
    )
    backend = LearningBackend(workload, simulated_nodes("1x1"))
    RoundLoop(backend, make_rules("fifo", "stay")).round()
    backend.wait(float("inf"))
    backend.wait(float("inf"))
    assert backend.observe().jobs.remaining.tolist() == pytest.approx([900.0], rel=0.01)


def test_what_a_restart_costs_is_learned() -> None:
    jobs = [a_job(f"j{n:02d}", 1, remaining=50.0) for n in range(40)]
    backend, rounds = (
        LearningBackend(a_workload(jobs), simulated_nodes("1x2"), SimulationConfig(costs=Costs(restart_seconds=60))),
        Rounds(),
    )
    RoundLoop(backend, make_rules("fifo", "stay"), (rounds,)).run()
    costs = [known[3] for known in rounds.known]
    assert costs[0] == 10.0
    assert costs[-1] == pytest.approx(58.8, abs=0.1)
    assert costs == sorted(costs)


def test_resize_in_place_is_no_measurement_of_a_restart() -> None:
    jobs = [a_job("a", (1, 4), remaining=100.0), a_job("b", (1, 4), submit=40.0, remaining=100.0)]
    costs = Costs(restart_seconds=30, rescale_seconds=1)
    backend = LearningBackend(a_workload(jobs), simulated_nodes("1x4"), SimulationConfig(costs=costs))
    RoundLoop(backend, make_rules("elastic-fifo", "stay")).run()
    assert backend.counters.resizes > 0
    assert [(record.restarts, record.restarting_seconds) for record in backend.estimates.learned.records] == [(2, 60.0)]


def test_learning_goes_on_from_what_is_kept() -> None:
    first = LearningBackend(pairs("a"), simulated_nodes("1x5"))
    RoundLoop(first, make_rules("ffdl", "stay")).run()
    kept = first.estimates.learned
    second = LearningBackend(pairs("a"), simulated_nodes("1x5"), known=kept)
    snapshot = second.observe()
    good, poor = (snapshot.curves.speed_of(int(code), 4) for code in snapshot.jobs.curve.tolist()[:2])
    assert good > 3
    assert poor < 2
    assert second.estimates.learned == kept


@pytest.mark.parametrize("policy", ["ffdl", "afs-l", "srjf", "elastic-tiresias"])
@pytest.mark.parametrize("knowledge", [LEARNED, Knowledge(KnowledgeSource.NOISY, 0.5)])
def test_every_job_ends_and_does_its_work_whatever_is_believed(policy: str, knowledge: Knowledge) -> None:
    workload = pairs("a")
    workload = replace(workload, curve=np.zeros(len(workload), dtype=np.int64))  # linear: device time is work
    backend = make_backend(knowledge, workload, simulated_nodes("1x5"))
    RoundLoop(backend, make_rules(policy, "stay")).run()
    assert max(backend.finish) < float("inf")
    assert backend.counters.device_seconds == pytest.approx(float(workload.work.sum()))


def test_true_knowledge_is_the_plain_backend() -> None:
    assert type(make_backend(TRUE, pairs("a"), simulated_nodes("1x5"))) is SimulatedBackend


def test_noise_of_nothing_is_the_truth() -> None:
    for policy in ("afs-l", "ffdl", "srjf"):
        finish = []
        for knowledge in (TRUE, Knowledge(KnowledgeSource.NOISY, 0.0)):
            backend = make_backend(knowledge, pairs("a"), simulated_nodes("1x5"))
            RoundLoop(backend, make_rules(policy, "stay")).run()
            finish.append(backend.finish)
        assert finish[0] == finish[1]


def test_noise_is_drawn_from_the_seed_and_curves_stay_concave() -> None:
    def observe_noisy(seed: int) -> Snapshot:
        return make_backend(
            Knowledge(KnowledgeSource.NOISY, 0.5), pairs("a"), simulated_nodes("1x5"), seed=seed
        ).observe()

    assert (
        observe_noisy(1).jobs.remaining.tolist()
        == observe_noisy(1).jobs.remaining.tolist()
        != observe_noisy(2).jobs.remaining.tolist()
    )
    assert observe_noisy(1).curves == observe_noisy(1).curves != observe_noisy(2).curves
    for row in observe_noisy(1).curves.rows[1:]:
        gains = np.diff(row, prepend=0.0)
        assert row[0] == 1.0
        assert (gains >= 0).all()
        assert (np.diff(gains) <= 1e-9).all()


def test_noise_is_as_large_as_was_asked_for() -> None:
    workload = a_workload([a_job(f"j{n:04d}", 1, remaining=100.0) for n in range(2000)])
    snapshot = make_backend(Knowledge(KnowledgeSource.NOISY, 0.3), workload, simulated_nodes("1x1")).observe()
    logs = np.log(snapshot.jobs.remaining / 100.0)
    assert float(logs.std()) == pytest.approx(0.3, rel=0.05)
    assert float(logs.mean()) == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("text", ["true", "learned", "noisy:0.3", "noisy:0"])
def test_knowledge_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_knowledge(text)) == text


@pytest.mark.parametrize(
    "text", ["", "tru", "learned:1", "noisy", "noisy:", "noisy:x", "noisy:-1", "noisy:nan", "noisy:9"]
)
def test_other_words_for_knowledge_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"noisy:0\.3"):
        parse_knowledge(text)
