"""Nodes and jobs as control groups of version 1, where each controller has a tree of its own.

ROOT/NODE/JOB in `cpu` holds the weights: the node's is constant, so that a job that is given less leaves the rest to
its neighbours on the node and not to outsiders. CPU sets and memory limits are the node's. What a job used, and the
group by which it can be killed, do not depend on the node: they are ROOT/all/JOB and stay when the job moves.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from sterna.backends.local.cgroups.tree import CANNOT_EMPTY, MOST_ROUNDS, Tree, core_list, move_member, sweep
from sterna.errors import Retry

SHARES_PER_CORE = 1024
"""The kernel's own for one task group: against the rest of the machine a node weighs as much as its cores."""

_FEWEST_SHARES, _MOST_SHARES = 2, 262144
_ANY_NODE = "all"


class LegacyControl:
    """`roots` are our own top groups by controller; `cpu` must be there. `unified` is version 2 beside it, if any."""

    def __init__(self, tree: Tree, roots: Mapping[str, str], unified: str | None = None) -> None:
        self._tree = tree
        self._roots = dict(roots)
        self._killing = unified or roots.get("freezer")
        for name in ("cpu", "cpuset"):
            if name in self._roots:
                self._make_root(name)

    @property
    def words(self) -> str:
        parts = ["weight", *(name for name in ("cpuset", "memory") if name in self._roots)]
        return f"cgroup v1: {', '.join(parts)}"

    def make_node(self, name: str, cpus: Sequence[int], memory_bytes: int | None = None) -> None:
        tree, cpu = self._tree, os.path.join(self._roots["cpu"], name)
        tree.make(cpu)
        tree.write(cpu, "cpu.shares", str(max(1, len(cpus)) * SHARES_PER_CORE))
        self._weigh_root()
        if "cpuset" in self._roots:
            cpuset = os.path.join(self._roots["cpuset"], name)
            tree.make(cpuset)
            # Both are empty in a new group, and nobody can enter before they are set.
            tree.write(cpuset, "cpuset.mems", tree.read(self._roots["cpuset"], "cpuset.mems").strip())
            tree.write(cpuset, "cpuset.cpus", core_list(cpus))
        if memory_bytes is not None and "memory" in self._roots:
            tree.make(self._roots["memory"])
            memory = os.path.join(self._roots["memory"], name)
            tree.make(memory)
            tree.write(memory, "memory.limit_in_bytes", str(memory_bytes))

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """The groups that its processes enter; again without harm."""
        return (*self._held_by_node(node), *self._held_by_job(job), self._make_weighed(node, job))

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        shares = min(max(round(weight * SHARES_PER_CORE), _FEWEST_SHARES), _MOST_SHARES)
        self._tree.write(self._weighed(node, job), "cpu.shares", str(shares))

    def move(self, job: str, source: str, target: str) -> None:
        """All its processes, while they run. The weights' tree comes last: a child that is born half-way is then still
        listed in the old place and is seen in the next round."""
        tree, old = self._tree, self._weighed(source, job)
        new, others = self._make_weighed(target, job), self._held_by_node(target)
        if shares := tree.read(old, "cpu.shares").strip():
            tree.write(new, "cpu.shares", shares)
        for _ in range(MOST_ROUNDS):
            members = tree.members(old)
            if not members:
                break
            for pid in members:
                for group in (*others, new):
                    move_member(tree, group, pid)
        else:
            raise Retry(CANNOT_EMPTY.format(job=job, node=source))
        if not self._counts_with_weights:
            tree.remove(old)

    def remove(self, node: str, job: str) -> None:
        """Everywhere: it may have been on other nodes before."""
        for root in self._tops:
            for below in self._tree.subgroups(root):
                self._tree.remove(os.path.join(below, job))

    def remove_node(self, name: str) -> None:
        for controller in ("cpu", "cpuset", "memory"):
            if controller in self._roots:
                self._tree.remove(os.path.join(self._roots[controller], name))

    def cpu_seconds(self, job: str) -> float | None:
        """Of all nodes it was on; None where the kernel does not count."""
        if "cpuacct" not in self._roots:
            return None
        groups = [os.path.join(node, job) for node in self._tree.subgroups(self._roots["cpuacct"])]
        used = [self._tree.read(group, "cpuacct.usage") for group in groups]
        return sum(int(each) for each in used if each) / 1e9

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        sweep(self._tree, self._tops, jobs, nodes)

    def close(self) -> None:
        """Remove what is empty; what still runs keeps its groups."""
        for root in self._tops:
            self._tree.remove(root)

    @property
    def _tops(self) -> list[str]:
        """Our top group in every tree, once."""
        return list(dict.fromkeys([*self._roots.values(), *([self._killing] if self._killing else [])]))

    @property
    def _counts_with_weights(self) -> bool:
        """Where both controllers are one tree, an account is a group of weights, and old ones are kept for their
        sums."""
        return self._roots.get("cpuacct") == self._roots["cpu"]

    def _weighed(self, node: str, job: str) -> str:
        return os.path.join(self._roots["cpu"], node, job)

    def _make_weighed(self, node: str, job: str) -> str:
        group = self._weighed(node, job)
        self._tree.make(group)
        return group

    def _held_by_node(self, node: str) -> tuple[str, ...]:
        """Groups of the node itself; only those that were made for it."""
        folders = [os.path.join(self._roots[name], node) for name in ("cpuset", "memory") if name in self._roots]
        return tuple(folder for folder in folders if self._tree.has(folder, "cgroup.procs"))

    def _held_by_job(self, job: str) -> tuple[str, ...]:
        roots = [self._killing] if self._killing else []
        if "cpuacct" in self._roots and not self._counts_with_weights:
            roots.append(self._roots["cpuacct"])
        groups = []
        for root in roots:
            for group in (root, os.path.join(root, _ANY_NODE), os.path.join(root, _ANY_NODE, job)):
                self._tree.make(group)
            groups.append(group)
        return tuple(groups)

    def _make_root(self, name: str) -> None:
        root = self._roots[name]
        self._tree.make(root)
        if name == "cpuset":
            above = os.path.dirname(root)
            for file in ("cpuset.mems", "cpuset.cpus"):
                self._tree.write(root, file, self._tree.read(above, file).strip())

    def _weigh_root(self) -> None:
        """As much as its nodes together, or they would be squeezed into one core's worth."""
        root = self._roots["cpu"]
        shares = [self._tree.read(node, "cpu.shares") for node in self._tree.subgroups(root)]
        total = sum(int(each) for each in shares if each)
        self._tree.write(root, "cpu.shares", str(min(max(total, _FEWEST_SHARES), _MOST_SHARES)))
