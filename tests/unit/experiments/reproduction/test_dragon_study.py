"""The DRAGON study: half-started jobs under the default scheduler, and workloads with the published gains."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sterna.backends.simulated.workload import workload_of
from sterna.experiments.reproduction.dragon.default_scheduler import STANDSTILL, without_gangs
from sterna.experiments.reproduction.dragon.runs import Scheduler, run
from sterna.experiments.reproduction.dragon.study import PUBLISHED_ELAPSED, PUBLISHED_UTILIZATION, reproduce
from sterna.workloads.published.dragon import MIXTURES, SPEEDUPS, Mixture, trace_of

ALONE, IDLE, CROWDED, LARGE, RIGID = MIXTURES


def test_a_workload_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    once, again, other = trace_of(CROWDED, 3), trace_of(CROWDED, 3), trace_of(CROWDED, 4)
    assert once.duration_seconds.tolist() == again.duration_seconds.tolist()
    assert once.duration_seconds.tolist() != other.duration_seconds.tolist()
    assert set(once.model) == set(SPEEDUPS)


def test_a_job_that_lacks_a_pod_holds_devices_and_does_not_train() -> None:
    workload = workload_of(trace_of(LARGE, 0), SPEEDUPS)
    jobs = without_gangs(workload)
    for row in range(len(jobs)):
        asked, code = int(jobs.request[row]), int(jobs.curve[row])
        assert jobs.curves.speed_of(code, asked) == workload.curves.speed_of(int(workload.curve[row]), asked)
        assert all(jobs.curves.speed_of(code, some) == STANDSTILL for some in range(1, asked))


@pytest.mark.parametrize("scheduler", [Scheduler.DRAGON, Scheduler.PODS, Scheduler.GANGS])
def test_every_job_ends_unless_pods_are_drawn_by_chance(scheduler: Scheduler) -> None:
    done = run(CROWDED, 0, scheduler, 0.3)
    assert done.finished == 1
    assert 0 < done.utilization <= 1


def test_pods_by_chance_come_to_a_standstill() -> None:
    assert run(CROWDED, 0, Scheduler.PODS_BY_CHANCE, 0.0).finished < 1
    assert run(ALONE, 0, Scheduler.PODS_BY_CHANCE, 0.0).finished == 1


def test_half_started_jobs_cost_the_default_utilisation() -> None:
    pods, gangs = (run(CROWDED, 1, scheduler, 0.0) for scheduler in (Scheduler.PODS, Scheduler.GANGS))
    assert pods.utilization < gangs.utilization
    assert pods.elapsed_seconds > gangs.elapsed_seconds


def test_the_published_gains_come_out_where_jobs_are_alone_and_ask_for_less_than_they_may_have() -> None:
    changes = [
        (100 * (ours.elapsed_seconds / theirs.elapsed_seconds - 1), 100 * (ours.utilization / theirs.utilization - 1))
        for seed in range(3)
        for ours, theirs in [(run(ALONE, seed, Scheduler.DRAGON, 0.0), run(ALONE, seed, Scheduler.PODS, 0.0))]
    ]
    elapsed, utilization = np.mean(changes, axis=0)
    assert elapsed <= PUBLISHED_ELAPSED
    assert utilization >= PUBLISHED_UTILIZATION


def test_nothing_is_gained_if_no_job_is_elastic_and_the_network_costs_nothing() -> None:
    small = Mixture("rigid", "2x4", 12, 60.0, (2, 4), least=None, most=None)
    ours, theirs = (run(small, 0, scheduler, 0.0) for scheduler in (Scheduler.DRAGON, Scheduler.GANGS))
    assert ours.elapsed_seconds == pytest.approx(theirs.elapsed_seconds, rel=0.05)


@pytest.mark.slow
def test_the_study_is_a_table_that_can_be_written_as_json() -> None:
    told: list[tuple[int, int]] = []
    study = reproduce(1, lambda done, of: told.append((done, of)))
    assert told[-1] == (15, 15)
    gangs = [row for row in study.rows if row.metric.endswith("against a default with gangs")]
    assert len(gangs) == 3 * 15
    rigid = [row for row in gangs if "rigid jobs" in row.case and row.metric.startswith("mean elapsed")]
    assert rigid[0].ours == pytest.approx(0, abs=1)
    assert {row.case.partition(";")[0] for row in study.rows} == {mixture.name for mixture in MIXTURES}
    assert json.loads(json.dumps(study.as_document(), allow_nan=False))["name"] == "dragon"
    assert all(figure.plot["data"] for figure in study.figures())
