"""Nodes and jobs as control groups of version 2, in a subtree that is delegated to us.

ROOT/NODE/JOB/replica: the node has a constant weight, its CPU set and its memory limit; a job's weight counts among the
jobs on its node. In version 2 a group with controllers has either processes or children: replicas are in leaves below
their job, which passes on no controllers. CPU time is accounted in the job's group, so groups that it left by moving
stay until it is removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from sterna.backends.local.cgroups.tree import CANNOT_EMPTY, MOST_ROUNDS, Tree, core_list, move_member, sweep
from sterna.errors import Retry

WEIGHT_PER_CORE = 100
"""The kernel's default for one group."""

_MOST_WEIGHT = 10000
_WANTED = ("cpu", "cpuset", "memory")


class UnifiedControl:
    """`root`: our top group; its parent must pass on at least the controller `cpu`."""

    def __init__(self, tree: Tree, root: str) -> None:
        self._tree = tree
        self._root = root
        above = os.path.dirname(root)
        offered = tree.read(above, "cgroup.controllers").split()
        self._controllers = tuple(name for name in _WANTED if name in offered)
        if "cpu" not in self._controllers:
            raise OSError(f"the control group {above} does not offer the controller cpu")
        self._enable(above, self._controllers)
        tree.make(root)
        self._enable(root, self._controllers)

    @property
    def words(self) -> str:
        return f"cgroup v2: {', '.join(['weight', *self._controllers[1:]])}"

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None:
        tree, node = self._tree, self._node(name)
        tree.make(node)
        tree.write(node, "cpu.weight", str(min(max(1, len(cpus)) * WEIGHT_PER_CORE, _MOST_WEIGHT)))
        if "cpuset" in self._controllers:
            tree.write(node, "cpuset.cpus", core_list(cpus))
        if "memory" in self._controllers:
            tree.write(node, "memory.max", "max" if memory_bytes is None else str(memory_bytes))
        self._enable(node, ("cpu",))
        self._weigh_root()

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """Create the group that its processes enter. Idempotent."""
        group = self._job(node, job)
        self._tree.make(group)
        return (group,)

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        self._tree.write(self._job(node, job), "cpu.weight", str(min(max(round(weight * 100), 1), _MOST_WEIGHT)))

    def move(self, job: str, source: str, target: str) -> None:
        """Move all its processes while they run, each into the leaf of the same name."""
        tree, old = self._tree, self._job(source, job)
        (new,) = self.make_job(target, job)
        if weight := tree.read(old, "cpu.weight").strip():
            tree.write(new, "cpu.weight", weight)
        for _ in range(MOST_ROUNDS):
            crowded = [group for group in (old, *tree.subgroups(old)) if tree.members(group)]
            if not crowded:
                return
            for group in crowded:
                place = new if group == old else os.path.join(new, os.path.basename(group))
                tree.make(place)
                for pid in tree.members(group):
                    move_member(tree, place, pid)
        raise Retry(CANNOT_EMPTY.format(job=job, node=source))

    def remove(self, node: str, job: str) -> None:
        """Remove the job on all nodes: it may have moved."""
        for below in self._tree.subgroups(self._root):
            self._tree.remove(os.path.join(below, job))

    def remove_node(self, name: str) -> None:
        self._tree.remove(self._node(name))

    def cpu_seconds(self, job: str) -> float | None:
        total_microseconds = 0
        for node in self._tree.subgroups(self._root):
            for line in self._tree.read(os.path.join(node, job), "cpu.stat").splitlines():
                name, _, value = line.partition(" ")
                if name == "usage_usec":
                    total_microseconds += int(value)
        return total_microseconds / 1e6

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        sweep(self._tree, [self._root], jobs, nodes)

    def close(self) -> None:
        """Remove empty groups; running jobs keep theirs."""
        self._tree.remove(self._root)

    def _enable(self, group: str, controllers: Sequence[str]) -> None:
        given = self._tree.read(group, "cgroup.subtree_control").split()
        missing = [name for name in controllers if name not in given]
        if missing:
            self._tree.write(group, "cgroup.subtree_control", " ".join(f"+{name}" for name in missing))

    def _weigh_root(self) -> None:
        """Give the root the weight of its nodes together; otherwise they would share the weight of one core."""
        weights = [self._tree.read(node, "cpu.weight") for node in self._tree.subgroups(self._root)]
        total = sum(int(each) for each in weights if each)
        self._tree.write(self._root, "cpu.weight", str(min(max(total, 1), _MOST_WEIGHT)))

    def _node(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _job(self, node: str, job: str) -> str:
        return os.path.join(self._root, node, job)
