"""`serving`: capacity for pending serving pods, before all training. E-DRAGON's rule, repaired.

Free capacity that fits a pending pod is kept for it on one node until another scheduler binds the pod, at most for
`timeout` seconds. This needs no state: a pod that is still pending gets a reservation again in every round, and pods
that fitted together are packed together again. If nothing fits, jobs above their minimum shrink on the node where that
costs least; only if that does not help, jobs stop, cheapest first, those that have not shown that they can save last
and only if the administrator allows it. A pod that no node can ever hold gets no
reservation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sterna.engine.price import ChangeCosts, devices
from sterna.model.cluster import slots_in
from sterna.rules import (
    NEVER,
    NOWHERE,
    Action,
    ActionKind,
    Assignment,
    FreeCapacity,
    JobKey,
    Nodes,
    Reserved,
    ResourceKind,
    ServingPod,
    Shape,
    Snapshot,
    cost,
    knob,
    reservation,
)

TIMEOUT_SECONDS = 600.0
"""Default of `Serving.timeout`."""
_CROSSED = 1e-6
_MAX_NODES = 32
"""Most nodes that are tried for one pod, those with the most free capacity first."""
_MAX_STEPS = 500
"""Most steps of the search that packs pods together."""


@reservation("serving")
@dataclass(frozen=True)
class Serving:
    """Pending serving pods go first: training shrinks for them, and in the last resort stops."""

    timeout: float = knob(TIMEOUT_SECONDS, "Seconds for which room is kept free for a pod that stays pending.")
    preempt: bool = knob(True, "In the last resort stop whole jobs, not only shrink them.")
    most: float = knob(math.inf, "Device-seconds that making room for one pod may cost.")

    def __call__(self, snapshot: Snapshot) -> Reserved:
        waiting = [pod for pod in snapshot.serving if snapshot.now < pod.since + self.timeout - _CROSSED]
        waiting.sort(key=lambda pod: (pod.rank, pod.since, pod.name))
        maker = _RoomMaker(snapshot, self.preempt, self.most)
        for pod in waiting:
            maker.admit(pod)
        until = min((pod.since + self.timeout for pod in waiting), default=NEVER)
        if maker.after:
            return Reserved(maker.actions(), maker.reserving, snapshot, until)
        return Reserved([], {}, maker.without_reserved(), until)


class _Offer(NamedTuple):
    """Way to make room on one node: cost in device-seconds, workers removed, and new assignments by row."""

    price: float
    workers: int
    node: int
    after: dict[int, Assignment]


class KeptRoom:
    """Capacity kept free for pods, on a scratch copy of the nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.room = FreeCapacity(nodes)
        """Free capacity with the pods in it."""
        self.empty = self.room.clone()
        """Free capacity without them."""
        self.pods: list[Shape] = []

    def add(self, shape: Shape) -> bool:
        """Keep room for one more pod, moving the others if needed; return False if that is impossible."""
        runs = self.room.tightest(shape, 1)
        if runs:
            self.put(shape, runs[0][0])
            return True
        is_hopeless = not self.empty.tightest(shape, 1)  # skip the search if it fits nowhere
        room = None if is_hopeless else pack_together(self.empty, [*self.pods, shape])
        if room is None:
            return False
        self.room = room
        self.pods.append(shape)
        return True

    def put(self, shape: Shape, node: int) -> None:
        """Keep room for one more pod on this node."""
        self.room.take(shape, node, 1)
        self.pods.append(shape)


class _RoomMaker:
    """Makes room for pods that do not fit into free capacity."""

    def __init__(self, snapshot: Snapshot, may_stop: bool, most: float) -> None:
        self._snapshot, self._may_stop, self._most = snapshot, may_stop, most
        self._kept = KeptRoom(snapshot.nodes)
        self.after: dict[int, Assignment] = {}
        """New assignments of the jobs that shrink or stop, by row."""
        self.reserving: dict[int, str] = {}
        self._on_node: dict[int, list[int]] | None = None
        self._costs = ChangeCosts(snapshot)
        self._stops_unsaved = False
        """Jobs that have not shown that they can save may be stopped, too."""

    def admit(self, pod: ServingPod) -> None:
        if self._kept.add(pod.shape):
            return
        offer = self._best_offer(pod.shape)
        if offer is None:
            return
        for row, assignment in offer.after.items():
            self._reassign(self._kept.empty, row, assignment)
            self._reassign(self._kept.room, row, assignment)
            self.after[row] = assignment
            self.reserving.setdefault(row, pod.name)
        self._kept.put(pod.shape, offer.node)

    def without_reserved(self) -> Snapshot:
        """Return the snapshot without the capacity that is kept free."""
        snapshot, kept = self._snapshot, self._kept
        if not kept.pods:
            return snapshot
        is_device = snapshot.nodes.unit is ResourceKind.DEVICES
        units = sum(shape.devices if is_device else shape.cpus for shape in kept.pods)
        nodes = replace(snapshot.nodes, free=kept.room.free, shared=kept.room.shared)
        return replace(snapshot, nodes=nodes, free_units=snapshot.free_units - units)

    def actions(self) -> list[Action]:
        actions = []
        for row, assignment in self.after.items():
            kind, key = (
                ActionKind.SHRINK if assignment.workers else ActionKind.STOP,
                JobKey(self._snapshot.jobs.key.item(row)),
            )
            actions.append(Action(kind, key, row, self._snapshot.assignment_of(row), assignment))
        return sorted(actions, key=lambda action: (action.kind, action.row))

    # Ways to make room.

    def _best_offer(self, shape: Shape) -> _Offer | None:
        """Return the cheapest offer: by shrinking if that helps on any node, else by stopping jobs that can save, and
        only then, if the administrator allows it, by stopping others."""
        nodes = self._candidates(shape)
        offers = [offer for node in nodes if (offer := self._offer(shape, node, stops=False)) is not None]
        if not offers and self._may_stop:
            offers = [offer for node in nodes if (offer := self._offer(shape, node, stops=True)) is not None]
        if not offers and self._may_stop and self._snapshot.evicts_unsaved:
            self._stops_unsaved = True
            offers = [offer for node in nodes if (offer := self._offer(shape, node, stops=True)) is not None]
            self._stops_unsaved = False
        return min((offer for offer in offers if offer.price <= self._most), key=lambda offer: offer[:3], default=None)

    def _candidates(self, shape: Shape) -> list[int]:
        """Return nodes with jobs that could hold the pod if they were empty, most free capacity first."""
        nodes, free = self._snapshot.nodes, self._kept.room.free[self._snapshot.nodes.unit]
        could = (slots_in(nodes.capacity, shape) > 0) & nodes.accepting(shape)
        hosts = [node for node in self._jobs_by_node() if could[node]]
        return sorted(hosts, key=lambda node: (-free.item(node), node))[:_MAX_NODES]

    def _jobs_by_node(self) -> dict[int, list[int]]:
        if self._on_node is None:
            row_of = {key: row for row, key in enumerate(self._snapshot.jobs.key.tolist())}
            self._on_node = {}
            for key, assignment in self._snapshot.assignments.items():
                for node in {node for node, _ in assignment.workers if node >= 0}:
                    self._on_node.setdefault(node, []).append(row_of[key])
        return self._on_node

    def _offer(self, shape: Shape, node: int, *, stops: bool) -> _Offer | None:
        """Return the offer for this node, None if the pod cannot fit. Restores the scratch capacity."""
        after: dict[int, Assignment] = {}
        price, workers = 0.0, 0
        for row, assignment, gone in self._steps(node, stops):
            if self._kept.room.slots_at(shape, node) > 0:
                break
            if row not in after:
                price += cost(self._snapshot, row)
            workers += gone
            self._reassign(self._kept.room, row, assignment, after.get(row))
            after[row] = assignment
        fits = self._kept.room.slots_at(shape, node) > 0
        for row in after:
            self._reassign(self._kept.room, row, self._assignment(row), after[row])
        return _Offer(price, workers, node, after) if fits else None

    def _steps(self, node: int, stops: bool) -> Iterator[tuple[int, Assignment, int]]:
        """Yield removals: one worker at a time from jobs above their minimum, cheapest first; then, with `stops`, whole
        jobs."""
        rows = self._jobs_by_node()[node]
        cheapest = sorted(
            rows,
            key=lambda row: (
                not self._costs.can_stop[row],
                cost(self._snapshot, row),
                devices(self._snapshot, row),
                -row,
            ),
        )
        for row in cheapest:
            if not self._costs.can_resize[row]:
                continue
            assignment, least = self._assignment(row), self._snapshot.jobs.minimum.item(row)
            while assignment.size > max(least, 1) and _has(assignment, node):
                assignment = _remove_one(assignment, node)
                yield row, assignment, 1
        for row in cheapest if stops else ():
            if self._stops_unsaved or self._costs.can_stop[row]:
                yield row, NOWHERE, self._assignment(row).size

    def _assignment(self, row: int) -> Assignment:
        return self.after.get(row, self._snapshot.assignment_of(row))

    def _reassign(self, room: FreeCapacity, row: int, assignment: Assignment, before: Assignment | None = None) -> None:
        shape = self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        room.release(shape, self._assignment(row) if before is None else before)
        room.occupy(shape, assignment)


def pack_together(room: FreeCapacity, shapes: list[Shape]) -> FreeCapacity | None:
    """Return the capacity with one pod of each shape in it, if a bounded search (largest pod first, tightest node
    first) finds room for all."""
    order = sorted(shapes, key=lambda shape: (shape.devices, shape.cpus, shape.memory_bytes), reverse=True)
    steps = 0

    def place_from(room: FreeCapacity, index: int) -> FreeCapacity | None:
        nonlocal steps
        if index == len(order):
            return room
        shape, tried = order[index], set[tuple[int, ...]]()
        slots = room.slots(shape)
        nodes = (slots > 0).nonzero()[0]
        for node in nodes[room.free[:, nodes].sum(axis=0).argsort(kind="stable")].tolist():
            alike = tuple(room.free[:, node].tolist())
            if alike in tried:
                continue
            tried.add(alike)
            steps += 1
            if steps > _MAX_STEPS:
                return None
            fuller = room.clone()
            fuller.take(shape, node, 1)
            found = place_from(fuller, index + 1)
            if found is not None:
                return found
        return None

    return place_from(room, 0) if len(order) <= _MAX_STEPS else None


def _has(assignment: Assignment, node: int) -> bool:
    """Return True if a worker other than worker 0 is on this node."""
    return any(each == node and (index or count > 1) for index, (each, count) in enumerate(assignment.workers))


def _remove_one(assignment: Assignment, node: int) -> Assignment:
    """Remove the worker with the highest number on this node."""
    runs = list(assignment.workers)
    place = max(index for index, (each, _) in enumerate(runs) if each == node)
    number = sum(count for _, count in runs[: place + 1]) - 1
    count = runs[place][1]
    runs[place : place + 1] = [(node, count - 1)] if count > 1 else []
    return Assignment(tuple(runs), assignment.ps, assignment.slots[:number] + assignment.slots[number + 1 :])
