"""Workers join and leave a training that goes on; no step is lost, and no member waits for a missing one."""

from __future__ import annotations

import array
import functools
import json
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sterna.agent.elastic import Group
from sterna.agent.process import AgentProcess
from tests.unit.agent.scripts import BOUND_SECONDS, lines, until
from tests.unit.agent.workers import ElasticJob


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ElasticJob]:
    made = ElasticJob(tmp_path)
    yield made
    made.close()


def test_workers_join_and_leave_and_no_step_is_lost(job: ElasticJob) -> None:
    first = job.want(0)
    job.start(0)
    job.trains(first, [0])
    second = job.want(0, 1)
    before = job.step(0)
    until(lambda: job.step(0) > before, "training while the newcomer boots")
    job.start(1)
    job.trains(second, [0, 1])
    third = job.want(0, 1, 2)
    job.start(2)
    job.trains(third, [0, 1, 2])
    fourth = job.want(0, 2)
    job.trains(fourth, [0, 2])
    assert job.ended(1) == 143
    assert (job.place(1) / "saved.json").exists()
    for index in (0, 2):
        steps = [line["step"] for line in lines(job.place(index))]
        assert steps == sorted(steps)


def test_leader_may_resign(job: ElasticJob) -> None:
    both = job.want(0, 1)
    job.start(0)
    until(lambda: job.step(0) > 0, "the first step")
    job.start(1)
    job.trains(both, [0, 1])
    left = job.want(1)
    job.trains(left, [1])
    assert job.ended(0) == 143
    before = job.step(1)
    until(lambda: job.step(1) > before, "training without the first")


def test_a_worker_that_is_killed_costs_no_step_and_no_scheduler_is_needed(job: ElasticJob) -> None:
    every = job.want(0, 1, 2)
    for index in range(3):
        job.start(index)
    job.trains(every, [0, 1, 2])
    for victim, rest in ((0, [1, 2]), (2, [1])):
        before = max(job.step(index) for index in rest)
        job.workers[victim].kill()
        job.trains(every, rest)
        until(functools.partial(_all_beyond, job, rest, before), "going on")


def _all_beyond(job: ElasticJob, indices: list[int], step: int) -> bool:
    return all(job.step(index) > step for index in indices)


def test_the_whole_job_saves_once_when_it_is_stopped_and_goes_on_from_there(job: ElasticJob) -> None:
    every = job.want(0, 1)
    job.start(0)
    job.start(1)
    job.trains(every, [0, 1])
    job.stop(0, 1)
    assert [job.ended(index) for index in (0, 1)] == [143, 143]
    with np.load(job.folder / "checkpoint" / "numpy_elastic.npz") as found:
        step = int(found["step"])
    assert step >= max(job.step(0), job.step(1))
    job.start(0)
    until(lambda: job.step(0) > step, "going on from the checkpoint")
    assert f"joined at step {step} " in job.said()[0]


def test_learned_weights_do_not_depend_on_membership_changes(tmp_path: Path) -> None:
    results = []
    for name, indices in (("alone", [0]), ("together", [0, 1])):
        folder = tmp_path / name
        folder.mkdir()
        job = ElasticJob(folder, steps=60, pad_seconds=0.0 if name == "alone" else 0.05)
        job.want(*indices)
        for index in indices:
            job.start(index)
        for index in indices:
            assert job.ended(index) == 0, job.said()
        with np.load(folder / "checkpoint" / "numpy_elastic.npz") as found:
            results.append(found["weights"])
    assert np.allclose(results[0], results[1], rtol=1e-9, atol=1e-12)


def test_without_sterna_a_group_is_one_process() -> None:
    state = array.array("d", [1.0, 2.0])
    group = Group([state], step=5, process=AgentProcess({}))
    assert (group.rank, group.size, group.step) == (0, 1, 5)
    assert group.sum(array.array("d", [1.0]))
    assert group.step == 6
    group.close()


def test_an_array_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        Group([np.zeros((4, 4))[:, ::2]], process=AgentProcess({}))
    with pytest.raises(ValueError, match="contiguous"):
        Group([b"read only"], process=AgentProcess({}))


class Threads:
    """Members of one group as threads of this process: faster than processes, and their sums can be looked at."""

    def __init__(self, folder: Path, size: int) -> None:
        members = []
        for index in range(size):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = f"127.0.0.1:{free.getsockname()[1]}"
            members.append({"rank": index, "attempt": 1, "index": index, "address": address})
        self.world = folder / "world.json"
        self.world.write_text(json.dumps({"generation": 1, "members": members}))
        self.addresses = [str(member["address"]) for member in members]

    def process(self, index: int) -> AgentProcess:
        return AgentProcess({"STERNA_WORLD": str(self.world), "STERNA_ATTEMPT": "1", "STERNA_INDEX": str(index)})


@pytest.mark.parametrize("kind", ["d", "f", "q"])
def test_sums_are_the_same_everywhere_whatever_they_are_made_of(tmp_path: Path, kind: str) -> None:
    threads = Threads(tmp_path, 3)
    sums: list[dict[int, list[float]]] = [{}, {}, {}]

    def work(index: int) -> None:
        state = array.array(kind, [0])
        group = Group([state], process=threads.process(index))
        while not all(len(each) >= 5 for each in sums):
            step, mine = group.step, array.array(kind, [index + 1, group.step, 1, 0])
            if group.sum(mine) and group.size == 3:
                sums[index][step] = list(mine)
        group.close()

    _run([threading.Thread(target=work, args=(index,)) for index in range(3)])
    common = set(sums[0]) & set(sums[1]) & set(sums[2])
    assert len(common) >= 4
    for step in common:
        assert sums[0][step] == sums[1][step] == sums[2][step] == [6, 3 * step, 3, 0]


@pytest.mark.parametrize("seed", range(6))
def test_members_that_come_and_go_at_random_agree_on_every_step(tmp_path: Path, seed: int) -> None:
    threads = Threads(tmp_path, 4)
    steps = 150
    ends: dict[int, int] = {}
    draw = random.Random(seed)
    quits = {index: sorted(draw.sample(range(10, steps - 10), 2)) for index in range(1, 4)}

    def work(index: int) -> None:
        lives = [*quits.get(index, []), steps]
        for last in lives:
            counter = np.zeros(1)
            group = Group([counter], step=0, process=threads.process(index))
            while group.step < last:
                part = np.array([1.0 / group.size])
                if group.sum(part):
                    counter += part  # a step adds one, by however many it was done
            ends[index] = round(float(counter[0]))
            if last != steps:
                assert ends[index] == group.step
            group.close()
            if group.step >= steps:
                return

    _run([threading.Thread(target=work, args=(index,)) for index in range(4)])
    assert ends[0] == steps


def test_peer_without_the_key_is_rejected(tmp_path: Path) -> None:
    threads = Threads(tmp_path, 2)
    group = Group([np.zeros(1)], process=threads.process(0))
    host, _, port = threads.addresses[0].rpartition(":")
    hello = json.dumps({"key": "guessed", "attempt": 1, "index": 1}).encode()
    for data in (b"GET / HTTP/1.1\r\n\r\n" + b" " * 40, _message(1, hello), _message(1, b"{"), _message(6, b"")):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            assert group.sum(np.ones(1))
            assert group.size == 1
    assert (tmp_path / ".group.key").stat().st_mode & 0o077 == 0
    group.close()


def test_worker_with_another_model_is_rejected(tmp_path: Path) -> None:
    threads = Threads(tmp_path, 2)
    group = Group([np.zeros(2)], process=threads.process(0))
    refusals: list[str] = []

    def join() -> None:
        try:
            Group([np.zeros(3)], process=threads.process(1))
        except ValueError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=join)
    thread.start()
    until(lambda: group.sum(np.ones(1)) and refusals, "a refusal")
    thread.join()
    assert "start every worker with the same model" in refusals[0]
    group.close()


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("!4sBIqQ", b"tern", kind, 0, 0, len(body)) + body


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
        assert not thread.is_alive()
