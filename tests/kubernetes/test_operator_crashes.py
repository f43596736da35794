"""The operator is killed (SIGKILL) after every single write, which it never hears was done. Nothing is lost, nothing is
there twice, and in the end everything is as it would have been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api import until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import FakeNodes, fleet
from tests.kubernetes.operated import Operated, a_training_job, install, is_going, names_of
from tests.kubernetes.operator_process import OperatorProcess
from tests.kubernetes.proxy import Proxy

MOST_LIVES = 40


class Mortal:
    """A cluster whose operator gets one write a life."""

    def __init__(self, plane: ControlPlane, nodes: FakeNodes, folder: Path) -> None:
        self._folder = folder
        self._proxy = Proxy(plane.kubeconfig, folder, self._kill)
        self._proxy.__enter__()
        self.operator = OperatorProcess(self._proxy.kubeconfig, "--no-leader-election")
        self.cluster = Operated(plane, nodes, self.operator, plane.api())
        self.lives = 1

    def _kill(self) -> None:
        self.operator.kill()

    def lives_until(self, fact: Callable[[], bool], what: str) -> None:
        """Killed and started again until something is so, and then for one life more without being disturbed."""
        while True:
            self._proxy.grant(1)
            self.cluster.until(lambda: not self.operator.is_running or fact(), what)
            if fact():
                break
            assert self.lives < MOST_LIVES, f"{what}: not after {self.lives} lives; writes: {self._proxy.writes}"
            self.operator.kill()
            self.lives += 1
            self.operator.restart()

    def go_on(self) -> None:
        """Run as an operator that is not killed."""
        self._proxy.grant(None)
        if not self.operator.is_running:
            self.operator.restart()

    def close(self) -> None:
        self.operator.__exit__(None, None, None)
        self._proxy.__exit__(None, None, None)
        self.cluster.api.close()


@pytest.fixture(scope="module")
def nodes(full_plane: ControlPlane) -> Iterator[FakeNodes]:
    with full_plane.api() as api:
        install(api)
    with FakeNodes(full_plane.kubeconfig, fleet(2, gpus=4)) as nodes:
        yield nodes


@pytest.fixture
def mortal(full_plane: ControlPlane, nodes: FakeNodes, tmp_path: Path) -> Iterator[Mortal]:
    mortal = Mortal(full_plane, nodes, tmp_path)
    try:
        yield mortal
        mortal.go_on()
        mortal.cluster.delete_all()
    finally:
        mortal.close()


def test_a_gang_starts_once(mortal: Mortal) -> None:
    cluster = mortal.cluster
    cluster.submit(a_training_job("gang", workers=3))
    mortal.lives_until(lambda: len(cluster.pods("gang", "Running")) == 3, "three running pods")
    mortal.go_on()
    cluster.until_phase("gang", "Running")
    pods = cluster.pods("gang")
    assert names_of(pods) == ["gang-worker-0", "gang-worker-1", "gang-worker-2"]
    assert {pod["metadata"]["labels"]["sterna.dev/attempt"] for pod in pods} == {"1"}


def test_a_job_ends_once(mortal: Mortal) -> None:
    cluster = mortal.cluster
    mortal.go_on()
    cluster.submit(a_training_job("ends", workers=2))
    cluster.until_phase("ends", "Running")
    mortal.operator.kill()
    for index in range(2):
        cluster.nodes.end(f"ends-worker-{index}")
    mortal.operator.restart()
    mortal.lives_until(lambda: cluster.phase("ends") == "Succeeded", "success")
    assert cluster.has_condition("ends", "Succeeded")


def test_a_job_gives_way_and_nothing_is_there_twice(mortal: Mortal) -> None:
    """The elastic one shrinks, the rigid one starts in its room, whatever dies in between."""
    cluster = mortal.cluster
    mortal.go_on()
    cluster.submit(a_training_job("elastic", workers="1:8", resizing="torchrun"))
    cluster.until_running("elastic", 8)
    cluster.until_phase("elastic", "Running")
    mortal.operator.kill()
    cluster.submit(a_training_job("rigid", workers=2, priority=1))
    mortal.operator.restart()

    def is_so() -> bool:
        staying = [pod for pod in cluster.pods() if not is_going(pod)]
        assert len(staying) <= 8, names_of(staying)
        return len(cluster.pods("rigid", "Running")) == 2 and len(cluster.pods("elastic", "Running")) == 6

    mortal.lives_until(is_so, "six and two workers")
    mortal.go_on()
    until(lambda: cluster.phase("rigid") == "Running" and cluster.phase("elastic") == "Running")
