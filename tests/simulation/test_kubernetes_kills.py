"""The operator killed at its n-th write, for many n: nothing is lost, nothing runs twice, nothing is left behind."""

from __future__ import annotations

from collections import Counter

import pytest

from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube_store import Event
from tests.simulation.kubernetes_runs import Cluster, Incarnation, is_over


class Doomed:
    """Kills an operator when it is about to write for the n-th time; whatever it sent before may still arrive."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._left, self.is_dead = number, False
        self._operator = cluster.operator = Incarnation(cluster.kube, may_write=self._may_write)

    def _may_write(self) -> bool:
        self._left -= 1
        if self._left <= 0 and not self.is_dead:
            self.is_dead = True
            self._operator.kube.call_in(0.0, self._operator.die)
        return True


class Ends:
    """Counts how often each pod did its work."""

    def __init__(self, cluster: Cluster) -> None:
        self.counts: Counter[str] = Counter()
        cluster.kube.store.listeners.append(self._note)

    def _note(self, resource: Resource, event: Event) -> None:
        if resource != PODS or event.after is None or event.after["status"].get("phase") != "Succeeded":
            return
        if event.before is None or event.before["status"].get("phase") != "Succeeded":
            self.counts[event.after["metadata"]["name"]] += 1


@pytest.mark.parametrize("is_tf", [True, False], ids=["TFJob", "TrainingJob"])
@pytest.mark.parametrize("number", range(1, 50, 4))
def test_an_operator_killed_at_any_write_is_followed_by_one_that_finishes_its_work(number: int, is_tf: bool) -> None:
    """DRAGON-48."""
    cluster = Cluster()
    for node in range(2):
        cluster.nodes.add(f"node-{node}", cpus=16, gpus=4)
    ends = Ends(cluster)
    doomed = Doomed(cluster, number)
    for name, least, most in (("small", 2, 4), ("large", 6, 8)):
        if is_tf:
            cluster.submit_tf(name, least, most, seconds=8.0)
        else:
            cluster.submit(name, most, seconds=8.0, cleanPodPolicy="All")
    for _ in range(240):
        if doomed.is_dead:
            break
        cluster.run(0.25)
    cluster.crash(0.3)
    cluster.run(120.0)
    assert cluster.phases() == {"small": "Succeeded", "large": "Succeeded"}
    assert [pod["metadata"]["name"] for pod in cluster.pods() if not is_over(pod)] == []
    if not is_tf:  # whose workers come and go, so that a worker may well be started twice
        assert set(ends.counts.values()) == {1}
