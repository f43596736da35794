"""`serving`: room for serving pods, before anything else. E-DRAGON's rule, repaired. DRAGON-54 to 59.

Room that a pending pod could use is kept free for it on one node until its own scheduler binds it, or for so long; that
needs no memory, because a pod that is still pending still claims, and where pods had room together they are found room
together again, whatever training did beside them. Where there is no such room, training jobs above
their minimum give up workers on the node where that costs least. Only if that helps nowhere are jobs stopped, the
cheapest first. A pod that no node could ever hold claims nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.price import cost, devices
from sterna.engine.registry import Reserved, knob, reservation
from sterna.model.cluster import NOWHERE, Assignment, Nodes, ResourceKind, Shape, slots_in
from sterna.model.plan import Action, ActionKind
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, JobKey, Snapshot

TIMEOUT_SECONDS = 600.0
"""For which room is kept free, unless somebody says otherwise."""
_CROSSED = 1e-6
_NODES = 32
"""So many nodes are looked at for one pod, the most promising first."""
_STEPS = 500
"""So many seats are tried to fit pods in together before room is made."""


@reservation("serving")
@dataclass(frozen=True)
class Serving:
    """Pending serving pods go first: training shrinks for them, and in the last resort stops."""

    timeout: float = knob(TIMEOUT_SECONDS, "Seconds for which room is kept free for a pod that nobody binds.")
    preempt: bool = knob(True, "In the last resort stop whole jobs, not only shrink them.")
    most: float = knob(math.inf, "Device-seconds that making room for one pod may cost.")

    def __call__(self, snapshot: Snapshot) -> Reserved:
        waiting = [pod for pod in snapshot.serving if snapshot.now < pod.since + self.timeout - _CROSSED]
        waiting.sort(key=lambda pod: (pod.rank, pod.since, pod.name))
        making = _Making(snapshot, self.preempt, self.most)
        for pod in waiting:
            making.admit(pod)
        until = min((pod.since + self.timeout for pod in waiting), default=NEVER)
        if making.after:
            return Reserved(making.actions(), making.reserving, snapshot, until)
        return Reserved([], {}, making.held_back(), until)


class _Offer(NamedTuple):
    """Making room on one node: what it costs, how many workers go, and where the jobs in question sit then."""

    price: float
    workers: int
    node: int
    after: dict[int, Assignment]


class Kept:
    """Room that is kept free for one pod after another, on a scratch copy of the nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.room = FreeCapacity(nodes)
        """With the pods so far in it."""
        self.empty = self.room.clone()
        """Without them."""
        self.seated: list[Shape] = []

    def seat(self, shape: Shape) -> bool:
        """Keep room for one more, if it fits in beside the others wherever those are; whether it does."""
        runs = self.room.tightest(shape, 1)
        if runs:
            self.put(shape, runs[0][0])
            return True
        is_hopeless = not self.empty.tightest(shape, 1)  # spares a search for what fits in nowhere
        room = None if is_hopeless else together(self.empty, [*self.seated, shape])
        if room is None:
            return False
        self.room = room
        self.seated.append(shape)
        return True

    def put(self, shape: Shape, node: int) -> None:
        """Keep room for one more on this node."""
        self.room.take(shape, node, 1)
        self.seated.append(shape)


class _Making:
    """Makes room for one pod after another where there is none."""

    def __init__(self, snapshot: Snapshot, may_stop: bool, most: float) -> None:
        self._snapshot, self._may_stop, self._most = snapshot, may_stop, most
        self._kept = Kept(snapshot.nodes)
        self.after: dict[int, Assignment] = {}
        """Rows of jobs that give room, and where they sit then."""
        self.reserving: dict[int, str] = {}
        self._tenants: dict[int, list[int]] | None = None

    def admit(self, pod: ServingPod) -> None:
        if self._kept.seat(pod.shape):
            return
        offer = self._best_offer(pod.shape)
        if offer is None:
            return
        for row, assignment in offer.after.items():
            self._reseat(self._kept.empty, row, assignment)
            self._reseat(self._kept.room, row, assignment)
            self.after[row] = assignment
            self.reserving.setdefault(row, pod.name)
        self._kept.put(pod.shape, offer.node)

    def held_back(self) -> Snapshot:
        """The same instant without the room that is kept free."""
        snapshot, kept = self._snapshot, self._kept
        if not kept.seated:
            return snapshot
        is_device = snapshot.nodes.unit is ResourceKind.DEVICES
        units = sum(shape.devices if is_device else shape.cpus for shape in kept.seated)
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

    # Where room could be made.

    def _best_offer(self, shape: Shape) -> _Offer | None:
        """The cheapest: by shrinking if that helps anywhere, else by stopping."""
        nodes = self._candidates(shape)
        offers = [offer for node in nodes if (offer := self._offer(shape, node, stops=False)) is not None]
        if not offers and self._may_stop:
            offers = [offer for node in nodes if (offer := self._offer(shape, node, stops=True)) is not None]
        return min((offer for offer in offers if offer.price <= self._most), key=lambda offer: offer[:3], default=None)

    def _candidates(self, shape: Shape) -> list[int]:
        """Nodes that could hold the pod if they were empty, with tenants of ours; those with most free first."""
        nodes, free = self._snapshot.nodes, self._kept.room.free[self._snapshot.nodes.unit]
        could = (slots_in(nodes.capacity, shape) > 0) & nodes.accepting(shape)
        hosts = [node for node in self._tenants_by_node() if could[node]]
        return sorted(hosts, key=lambda node: (-free.item(node), node))[:_NODES]

    def _tenants_by_node(self) -> dict[int, list[int]]:
        if self._tenants is None:
            row_of = {key: row for row, key in enumerate(self._snapshot.jobs.key.tolist())}
            self._tenants = {}
            for key, assignment in self._snapshot.assignments.items():
                for node in {node for node, _ in assignment.workers if node >= 0}:
                    self._tenants.setdefault(node, []).append(row_of[key])
        return self._tenants

    def _offer(self, shape: Shape, node: int, *, stops: bool) -> _Offer | None:
        """What it takes to make room for the pod here; None if it cannot be made. Leaves the room as it was."""
        after: dict[int, Assignment] = {}
        price, workers = 0.0, 0
        for row, assignment, gone in self._steps(node, stops):
            if self._kept.room.slots_at(shape, node) > 0:
                break
            if row not in after:
                price += cost(self._snapshot, row)
            workers += gone
            self._reseat(self._kept.room, row, assignment, after.get(row))
            after[row] = assignment
        fits = self._kept.room.slots_at(shape, node) > 0
        for row in after:
            self._reseat(self._kept.room, row, self._assignment(row), after[row])
        return _Offer(price, workers, node, after) if fits else None

    def _steps(self, node: int, stops: bool) -> Iterator[tuple[int, Assignment, int]]:
        """One worker less at a time, from those above their minimum, cheapest first; then, if asked, whole jobs."""
        tenants = self._tenants_by_node()[node]
        cheapest = sorted(tenants, key=lambda row: (cost(self._snapshot, row), devices(self._snapshot, row), -row))
        for row in cheapest:
            assignment, least = self._assignment(row), self._snapshot.jobs.minimum.item(row)
            while assignment.size > max(least, 1) and _has(assignment, node):
                assignment = _without_one(assignment, node)
                yield row, assignment, 1
        for row in cheapest if stops else ():
            yield row, NOWHERE, self._assignment(row).size

    def _assignment(self, row: int) -> Assignment:
        return self.after.get(row, self._snapshot.assignment_of(row))

    def _reseat(self, room: FreeCapacity, row: int, assignment: Assignment, before: Assignment | None = None) -> None:
        shape = self._snapshot.shapes[self._snapshot.jobs.shape.item(row)]
        room.give(shape, self._assignment(row) if before is None else before)
        room.occupy(shape, assignment)


def together(room: FreeCapacity, shapes: list[Shape]) -> FreeCapacity | None:
    """The room with one of each of these in it, if they can be found room together within a bounded search: largest
    first, tightest node first."""
    order = sorted(shapes, key=lambda shape: (shape.devices, shape.cpus, shape.memory_bytes), reverse=True)
    steps = 0

    def seated(room: FreeCapacity, place: int) -> FreeCapacity | None:
        nonlocal steps
        if place == len(order):
            return room
        shape, tried = order[place], set[tuple[int, ...]]()
        slots = room.slots(shape)
        nodes = (slots > 0).nonzero()[0]
        for node in nodes[room.free[:, nodes].sum(axis=0).argsort(kind="stable")].tolist():
            alike = tuple(room.free[:, node].tolist())
            if alike in tried:
                continue
            tried.add(alike)
            steps += 1
            if steps > _STEPS:
                return None
            fuller = room.clone()
            fuller.take(shape, node, 1)
            found = seated(fuller, place + 1)
            if found is not None:
                return found
        return None

    return seated(room, 0) if len(order) <= _STEPS else None


def _has(assignment: Assignment, node: int) -> bool:
    """Whether a worker sits there that may leave: the first one of a job never does."""
    return any(seat == node and (place or count > 1) for place, (seat, count) in enumerate(assignment.workers))


def _without_one(assignment: Assignment, node: int) -> Assignment:
    """Without the worker of the highest number that sits there."""
    runs = list(assignment.workers)
    place = max(place for place, (seat, _) in enumerate(runs) if seat == node)
    number = sum(count for _, count in runs[: place + 1]) - 1
    count = runs[place][1]
    runs[place : place + 1] = [(node, count - 1)] if count > 1 else []
    return Assignment(tuple(runs), assignment.ps, assignment.slots[:number] + assignment.slots[number + 1 :])
