"""Nodes and jobs as control groups of version 1, where each controller has a tree of its own.

ROOT/NODE/JOB in `cpu` holds the weights. The node's weight is constant, so CPU that one job leaves goes to the other
jobs on its node. CPU sets and memory limits belong to the node. CPU accounting and the group by which a job is killed
do not depend on the node: they are ROOT/all/JOB and stay when the job moves.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from sterna.backends.local.cgroups.tree import CANNOT_EMPTY, MOST_ROUNDS, Tree, core_list, move_member, sweep
from sterna.errors import Retry

SHARES_PER_CORE = 1024
"""The kernel's default for one group: against the rest of the machine a node weighs as much as its cores."""

_FEWEST_SHARES, _MOST_SHARES = 2, 262144
_ANY_NODE = "all"


class LegacyControl:
    """`roots`: our top groups by controller; `cpu` is required. `unified`: version 2 beside it, if any."""

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
            # Both are empty in a new group, and no process can enter before they are set.
            tree.write(cpuset, "cpuset.mems", tree.read(self._roots["cpuset"], "cpuset.mems").strip())
            tree.write(cpuset, "cpuset.cpus", core_list(cpus))
        if memory_bytes is not None and "memory" in self._roots:
            tree.make(self._roots["memory"])
            memory = os.path.join(self._roots["memory"], name)
            tree.make(memory)
            tree.write(memory, "memory.limit_in_bytes", str(memory_bytes))

    def make_job(self, node: str, job: str) -> tuple[str, ...]:
        """Create the groups that its processes enter. Idempotent."""
        return (*self._node_groups(node), *self._job_groups(job), self._create_weighted_groups(node, job))

    def set_cpu_share(self, node: str, job: str, weight: float) -> None:
        shares = min(max(round(weight * SHARES_PER_CORE), _FEWEST_SHARES), _MOST_SHARES)
        self._tree.write(self._create_weighted_group(node, job), "cpu.shares", str(shares))

    def move(self, job: str, source: str, target: str) -> None:
        """Move all its processes while they run. The tree with the weights comes last: a child forked meanwhile is then
        still listed in the old group and is found in the next round."""
        tree, old = self._tree, self._create_weighted_group(source, job)
        new, others = self._create_weighted_groups(target, job), self._node_groups(target)
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
        """Remove the job on all nodes: it may have moved."""
        for root in self._tops:
            for below in self._tree.subgroups(root):
                self._tree.remove(os.path.join(below, job))

    def remove_node(self, name: str) -> None:
        for controller in ("cpu", "cpuset", "memory"):
            if controller in self._roots:
                self._tree.remove(os.path.join(self._roots[controller], name))

    def cpu_seconds(self, job: str) -> float | None:
        """Return its CPU time on all nodes; None where the kernel does not account it."""
        if "cpuacct" not in self._roots:
            return None
        groups = [os.path.join(node, job) for node in self._tree.subgroups(self._roots["cpuacct"])]
        used = [self._tree.read(group, "cpuacct.usage") for group in groups]
        return sum(int(each) for each in used if each) / 1e9

    def sweep(self, jobs: Collection[str], nodes: Collection[str]) -> None:
        sweep(self._tree, self._tops, jobs, nodes)

    def close(self) -> None:
        """Remove empty groups; running jobs keep theirs."""
        for root in self._tops:
            self._tree.remove(root)

    @property
    def _tops(self) -> list[str]:
        """Return our top group in every tree, without duplicates."""
        return list(dict.fromkeys([*self._roots.values(), *([self._killing] if self._killing else [])]))

    @property
    def _counts_with_weights(self) -> bool:
        """True if both controllers share a tree: an accounting group then has a weight, and old ones are kept for their
        sums."""
        return self._roots.get("cpuacct") == self._roots["cpu"]

    def _create_weighted_group(self, node: str, job: str) -> str:
        return os.path.join(self._roots["cpu"], node, job)

    def _create_weighted_groups(self, node: str, job: str) -> str:
        group = self._create_weighted_group(node, job)
        self._tree.make(group)
        return group

    def _node_groups(self, node: str) -> tuple[str, ...]:
        """Return the groups of the node itself that were created for it."""
        folders = [os.path.join(self._roots[name], node) for name in ("cpuset", "memory") if name in self._roots]
        return tuple(folder for folder in folders if self._tree.has(folder, "cgroup.procs"))

    def _job_groups(self, job: str) -> tuple[str, ...]:
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
        """Give the root the weight of its nodes together; otherwise they would share the weight of one core."""
        root = self._roots["cpu"]
        shares = [self._tree.read(node, "cpu.shares") for node in self._tree.subgroups(root)]
        total = sum(int(each) for each in shares if each)
        self._tree.write(root, "cpu.shares", str(min(max(total, _FEWEST_SHARES), _MOST_SHARES)))
