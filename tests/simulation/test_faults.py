"""Lost nodes, thresholds, patience and quiet on virtual time."""

from __future__ import annotations

import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs, Fault, random_faults
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.engine.decide import decide
from sterna.model.cluster import NOWHERE
from sterna.model.plan import Decision, Outcome
from sterna.wiring import make_rules
from tests.builders import AJob, a_job
from tests.simulation.runs import Run, a_run, a_workload

PAIR = [a_job("a", remaining=100), a_job("b", remaining=100)]


def test_a_lost_node_strikes_its_jobs_and_no_others() -> None:
    """a waits from 10 to 30, when its node is back, and goes on where it was."""
    run = a_run(PAIR, "2x1", "fifo:preempt=false", faults=[Fault(0, 10, 20)])
    assert run.finish == {"a": 120, "b": 100}
    assert (run.backend.counters.failures, run.backend.counters.preemptions) == (1, 0)


def test_a_struck_job_loses_what_it_had_not_saved_and_pays_for_its_start() -> None:
    """a: 7 s of work until 10, of which 4 are saved; from 30 on 3 s of start and 96 s of work."""
    costs = Costs(restart_seconds=3, checkpoint_seconds=4)
    run = a_run(PAIR, "2x1", "fifo:preempt=false", faults=[Fault(0, 10, 20)], costs=costs)
    assert run.finish == {"a": 129, "b": 103}
    assert run.backend.counters.lost_seconds == 3


def test_a_struck_job_goes_on_elsewhere_if_there_is_room() -> None:
    run = a_run([a_job("a", remaining=100)], "2x1", faults=[Fault(0, 10)])
    assert run.finish == {"a": 100}
    assert run.log.actions == [(0, "START", "a"), (10, "START", "a")]


def test_a_job_that_spans_the_lost_node_is_struck_as_a_whole() -> None:
    """Two workers on two nodes; 1 s of a node's absence costs the job that second, not half of it."""
    run = a_run([a_job("a", 2, remaining=100)], "2x1", faults=[Fault(1, 10, 1)])
    assert run.finish == {"a": 51}


def test_a_node_that_never_comes_back_leaves_its_jobs_waiting() -> None:
    run = a_run(PAIR, "1x2", faults=[Fault(0, 10)])
    assert run.finish == {"a": float("inf"), "b": float("inf")}


def test_a_node_lost_again_at_the_instant_it_returns_stays_lost() -> None:
    run = a_run(PAIR[:1], "1x1", faults=[Fault(0, 10, 10), Fault(0, 20, 10)])
    assert run.finish == {"a": 120}


def test_a_node_lost_twice_at_once_is_back_when_both_are_over() -> None:
    run = a_run(PAIR[:1], "1x1", faults=[Fault(0, 10, 30), Fault(0, 20, 5)])
    assert run.finish == {"a": 130}


def test_where_devices_are_only_counted_a_lost_node_takes_its_count() -> None:
    """From 10 on there is one device: the younger job waits until the older has ended."""
    run = a_run(PAIR, "2x1", placement="none", faults=[Fault(0, 10)])
    assert run.finish == {"a": 100, "b": 190}


def test_the_same_seed_has_the_same_faults() -> None:
    faults = [random_faults(8, 1000.0, 50.0, 20_000.0, seed) for seed in (1, 1, 2)]
    assert faults[0] == faults[1]
    assert faults[0] != faults[2]
    assert all(0 <= fault.at_seconds < 20_000 and fault.for_seconds == 50 for fault in faults[0])


@pytest.mark.parametrize(
    "policy", ["fifo", "elastic-srjf", "tiresias:threshold=50", "elastic-tiresias", "afs-l", "dragon"]
)
@pytest.mark.parametrize("placement", ["pack", "stay:repack=stuck", "spread", "topology"])
def test_whatever_is_lost_all_jobs_end_and_a_second_run_is_the_same(policy: str, placement: str) -> None:
    jobs = [
        a_job(f"j{n:02d}", (1 + n % 2, 3), submit=5.0 * n, remaining=40.0 + n, devices=(1, 2, 0.5)[n % 3])
        for n in range(24)
    ]
    faults = random_faults(4, 200.0, 30.0, 2000.0, seed=5)
    costs = Costs(restart_seconds=2, checkpoint_seconds=3, cross_node_penalty=0.2)

    def once() -> Run:
        return a_run(jobs, "4x4", policy, placement, costs=costs, faults=faults)

    one, other = once(), once()
    assert all(finish < float("inf") for finish in one.finish.values())
    assert one.finish == other.finish
    assert one.log.actions == other.log.actions


def test_apply_refuses_a_start_on_a_node_that_was_lost_meanwhile() -> None:
    """The plan was made before 10, the node is lost at 10: the plan is stale."""
    backend = SimulatedBackend(a_workload(PAIR[:1]), simulated_nodes("1x1"), SimulationConfig(faults=[Fault(0, 10)]))
    plan = decide(backend.observe(), make_rules("fifo", "stay")).plan
    assert backend.wait(100)
    assert list(backend.apply(Decision(plan))) == [Outcome.STALE]
    assert backend.observe().assignment_of(0) == NOWHERE


# Rules that act though nothing happened.


def two_long_jobs(work: float) -> list[AJob]:
    return [a_job("a", remaining=work), a_job("b", remaining=work)]


def test_a_threshold_is_acted_on_when_it_is_crossed() -> None:
    """VODA-36: after 3600 s the first makes way for the second, and follows it."""
    run = a_run(two_long_jobs(10_000), "1x1", "tiresias")
    assert run.log.actions[:3] == [(0, "START", "a"), (3600, "STOP", "a"), (3600, "START", "b")]
    assert run.finish == {"b": 13_600, "a": 20_000}


def test_a_return_is_acted_on_when_it_is_due() -> None:
    """VODA-37: a ran 3600 s and waits from then on; at 3600 + 8 x 3600 it is back, and b makes way."""
    run = a_run(two_long_jobs(100_000), "1x1", "tiresias")
    assert run.log.actions[3:5] == [(32_400, "STOP", "b"), (32_400, "START", "a")]


def test_the_option_anew_counts_the_time_since_the_last_return() -> None:
    """VODA-37: with a threshold of 100 and returns after once the time run, both take turns of 100 s until they end."""
    run = a_run(two_long_jobs(1000), "1x1", "tiresias:threshold=100:promote=1:since_promotion=true")
    assert run.log.times("START")[:8] == [0, 100, 200, 300, 400, 500, 600, 700]


def test_a_job_that_ran_long_waits_long() -> None:
    """The time run counts over a job's life: turns grow, 100 and 100 s, then 200, 300 ..."""
    run = a_run(two_long_jobs(2000), "1x1", "tiresias:threshold=100:promote=1")
    assert run.log.times("START")[:6] == [0, 100, 200, 300, 500, 800]


def test_quiet_is_acted_on_when_it_is_over() -> None:
    """DRAGON-30: one worker for 60 s, four from then on."""
    run = a_run([a_job("a", (1, 4), remaining=1000)], "1x4", "dragon")
    assert run.log.actions == [(0, "START", "a"), (60, "GROW", "a")]
    assert run.finish == {"a": 295}


def test_patience_is_acted_on_when_it_is_lost() -> None:
    """DRAGON-20: b arrives at 100 and starts at 130, on what a gives up."""
    jobs = [a_job("a", (1, 4), workers=4, remaining=1000), a_job("b", 2, submit=100, remaining=100)]
    run = a_run(jobs, "1x4", "dragon")
    assert (130, "SHRINK", "a") in run.log.actions
    assert (130, "START", "b") in run.log.actions
