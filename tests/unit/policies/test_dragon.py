"""`dragon`: patience, shrinking, quiet, growth. DRAGON-11 to 13, 20 to 24, 27, 29, 30, 33."""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import AJob, Decided, a_job, a_node, a_snapshot, after, decided


def test_a_job_that_does_not_fit_is_passed_while_its_patience_lasts() -> None:
    """DRAGON-11."""
    jobs = [a_job("runs", 2, on={"n0": 2}), a_job("head", 4, submit=1), a_job("small", 1, submit=2)]
    result = decided(a_snapshot(jobs, 4, now=10), "dragon")
    assert result.allocation == {"runs": 2, "head": 0, "small": 1}
    assert result.decision.until == 31


def test_jobs_start_in_submission_order() -> None:
    """DRAGON-11."""
    jobs = [a_job("later", 4, submit=2), a_job("earlier", 4, submit=1)]
    assert decided(a_snapshot(jobs, 4, now=3), "dragon").allocation == {"earlier": 4, "later": 0}


@pytest.mark.parametrize(("devices", "workers"), [(2, 2), (3, 3), (4, 4), (8, 4), (1, 0)])
def test_a_job_starts_near_its_request_never_below_its_minimum(devices: int, workers: int) -> None:
    """DRAGON-12, 13: a job of 2..6 that asked for 4."""
    snapshot = a_snapshot([a_job("a", (2, 6), workers=4)], [a_node("n0", devices), a_node("n1", 0)])
    assert decided(snapshot, "dragon").allocation == {"a": workers}


def test_no_job_shrinks_before_the_patience_of_the_head_is_over() -> None:
    """DRAGON-21, 20: 29.9 s and 30 s of waiting."""
    wide = a_job("wide", (1, 4), on={"n0": 4})
    head = a_job("head", 2, submit=100)
    assert decided(a_snapshot([wide, head], 4, now=129.9), "dragon").actions == []
    result = decided(a_snapshot([wide, head], 4, now=130), "dragon")
    assert result.actions == [("SHRINK", "wide"), ("START", "head")]
    assert result.allocation == {"wide": 2, "head": 2}


def test_no_job_shrinks_if_all_together_cannot_free_enough() -> None:
    """DRAGON-20, 24: 2 + 1 spare, 4 needed."""
    jobs = [
        a_job("a", (2, 4), on={"n0": 4}),
        a_job("b", (2, 3), submit=1, on={"n0": 3}),
        a_job("head", 4, submit=2),
    ]
    assert decided(a_snapshot(jobs, 7, now=1000), "dragon").actions == []


def test_the_oldest_is_shrunk_first_and_no_further_than_needed() -> None:
    """DRAGON-27, 24."""
    young = a_job("young", (1, 4), on={"n0": 4}, first_start=50)
    old = a_job("old", (1, 4), submit=1, on={"n0": 4}, first_start=20)
    one = decided(a_snapshot([young, old, a_job("head", 2, submit=60)], 8, now=100), "dragon")
    assert one.allocation == {"young": 4, "old": 2, "head": 2}
    more = decided(a_snapshot([young, old, a_job("head", 5, submit=60)], 8, now=100), "dragon")
    assert more.allocation == {"young": 2, "old": 1, "head": 5}


def test_a_starving_head_that_cannot_be_helped_keeps_its_place() -> None:
    """DRAGON-22: the room it needs is not given away."""
    jobs = [a_job("runs", 2, on={"n0": 2}), a_job("head", 4, submit=1), a_job("small", 1, submit=2)]
    assert decided(a_snapshot(jobs, 4, now=31), "dragon").allocation == {"runs": 2, "head": 0, "small": 0}


def test_freed_room_goes_to_the_starving_job_before_any_other() -> None:
    """DRAGON-23, 22."""
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", 3, submit=1), a_job("small", 1, submit=2)]
    assert decided(a_snapshot(jobs, 4, now=31), "dragon").allocation == {"wide": 1, "head": 3, "small": 0}


def test_a_starving_job_starts_at_its_minimum() -> None:
    """DRAGON-20: room is made for what it must have, not for what it asked for."""
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", (2, 4), workers=4, submit=1)]
    assert decided(a_snapshot(jobs, 4, now=31), "dragon").allocation == {"wide": 2, "head": 2}


def test_a_job_behind_a_head_that_starts_now_has_waited_just_as_long() -> None:
    """The head was struck by a lost node a moment ago; the last in the queue has waited 98 s and need not wait more."""
    jobs = [
        a_job("head", 1, waiting_since=100),
        a_job("mid", (1, 2), workers=2, submit=1),
        a_job("last", 1, submit=2),
    ]
    snapshot = a_snapshot(jobs, 3, now=100)
    result = decided(snapshot, "dragon")
    assert decided(after(snapshot, result.decision), "dragon").actions == []


def quiet_for(seconds: float, policy: str = "dragon") -> Decided:
    jobs = [a_job("old", (1, 3), on={"n0": 1}, first_start=0), a_job("new", (1, 9), on={"n0": 1}, first_start=5)]
    return decided(a_snapshot(jobs, 8, now=1000, last_action=1000 - seconds), policy)


def test_nothing_grows_until_all_has_been_quiet() -> None:
    """DRAGON-29: and the decision stands until then."""
    assert quiet_for(59).actions == []
    assert quiet_for(59).decision.until == 1001


def test_after_quiet_the_oldest_grow_to_their_maximum() -> None:
    """DRAGON-30."""
    assert quiet_for(60).allocation == {"old": 3, "new": 5}


def test_a_start_restarts_the_quiet_and_growth_comes_after_it() -> None:
    """DRAGON-29, 30: nothing else happens, yet the job must grow 60 s after it started."""
    snapshot = a_snapshot([a_job("a", (1, 4))], 4, now=1000)
    first = decided(snapshot, "dragon")
    assert first.allocation == {"a": 1}
    assert first.decision.until == 1060


def test_patience_and_quiet_are_parameters() -> None:
    assert quiet_for(59, "dragon:quiet=10").allocation == {"old": 3, "new": 5}
    jobs = [a_job("wide", (1, 4), on={"n0": 4}), a_job("head", 2, submit=100)]
    assert decided(a_snapshot(jobs, 4, now=110), "dragon:patience=10").allocation == {"wide": 2, "head": 2}


def test_nothing_grows_while_a_job_starves() -> None:
    """DRAGON-33."""
    jobs = [a_job("runs", (2, 8), on={"n0": 2}), a_job("head", 7, submit=1)]
    assert decided(a_snapshot(jobs, 8, now=1000), "dragon").actions == []


def test_parameter_servers_count_for_a_starving_job() -> None:
    """DRAGON-20: PS and minimum workers, not workers alone; on a cluster of CPUs both need the same thing."""
    wide = a_job("wide", (1, 6), devices=0, cpus=1, on={"n0": 6})
    head = a_job("head", 2, submit=1, devices=0, cpus=1, ps=1, ps_cpus=2)
    result = decided(a_snapshot([wide, head], [a_node("n0", 0, cpus=6)], now=31), "dragon")
    assert result.allocation == {"wide": 2, "head": 2}


def test_growth_on_an_overcommitted_cluster_takes_nothing() -> None:
    """Others took what was ours: 1 device more is held than there is. No job grows or shrinks for that."""
    jobs = [a_job("a", (1, 4), on={"n0": 3}), a_job("b", 3, on={"n1": 3})]
    nodes = [a_node("n0", 4, foreign_devices=2), a_node("n1", 3)]
    assert decided(a_snapshot(jobs, nodes, now=1000), "dragon").actions == []


def test_a_running_job_above_its_new_maximum_shrinks_to_it_and_others_may_use_what_it_gives_back() -> None:
    """Its user has lowered the maximum while it ran."""
    jobs = [a_job("wide", (1, 2), on={"n0": 4}), a_job("waits", 2, submit=1)]
    assert decided(a_snapshot(jobs, 4, now=2), "dragon").allocation == {"wide": 2, "waits": 2}


@pytest.mark.parametrize(("devices", "workers"), [(4, 4), (3, 0)])
def test_a_running_job_below_its_minimum_is_completed_or_withdrawn(devices: int, workers: int) -> None:
    """Its user has raised the minimum, or a node with some of its workers was lost."""
    jobs = [a_job("short", (4, 8), on={"n0": 2}), a_job("other", 1, submit=1, on={"n1": 1})]
    snapshot = a_snapshot(jobs, [a_node("n0", devices), a_node("n1", 1)], now=2)
    assert decided(snapshot, "dragon").allocation == {"short": workers, "other": 1}


def test_of_two_jobs_below_their_minimum_the_older_is_completed() -> None:
    old, young = a_job("old", 3, submit=1, on={"n0": 2}, first_start=1), a_job("young", 3, on={"n0": 2}, first_start=2)
    assert decided(a_snapshot([old, young], 5, now=3), "dragon").allocation == {"old": 3, "young": 0}


def in_turn(queue: list[AJob], free: int, now: float) -> dict[str, int]:
    """Workers of each job, decided one by one, with no running job."""
    given: dict[str, int] = {}
    spare: dict[str, int] = {}
    is_somebody_passed = False
    for job in queue:
        if not is_somebody_passed and now - job.waiting_since >= 30:
            if job.minimum > free + sum(spare.values()):
                break
            for name in spare:
                back = min(spare[name], max(job.minimum - free, 0))
                given[name], spare[name], free = given[name] - back, spare[name] - back, free + back
            given[job.name] = job.minimum
        elif job.minimum <= free:
            given[job.name] = min(job.request, free)
        else:
            is_somebody_passed = True
            continue
        free -= given[job.name]
        spare[job.name] = given[job.name] - job.minimum
    return {job.name: given.get(job.name, 0) for job in queue}


@pytest.mark.parametrize("seed", range(5))
def test_a_long_queue_is_served_as_if_each_were_asked_alone(seed: int) -> None:
    """DRAGON-11 to 13: near the request as long as there is patience, at the minimum after that."""
    random = Random(seed)
    for _ in range(60):
        queue = []
        for number in range(random.randint(12, 30)):
            minimum = random.randint(1, 3)
            request = minimum + random.randint(0, 3)
            since = 50.0 if random.random() < 0.05 else 90.0
            queue.append(a_job(f"j{number:02}", (minimum, request + 2), workers=request, waiting_since=since))
        devices = random.randint(1, 90)
        result = decided(a_snapshot(queue, devices, now=100), "dragon")
        assert result.allocation == in_turn(queue, devices, 100)
