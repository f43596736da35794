"""Training that goes on while workers join and leave: sums over a group that forms itself anew, in process.

    group = elastic.Group([weights, bias], step=start)   # arrays that are changed in place, and the step they are of
    while group.step < total:
        gradient, loss = ...                             # of the part [group.rank :: group.size] of this step's batch
        if not group.sum(gradient, loss):                # adds up over all members, in place
            continue                                     # the group has changed: do this step again
        weights -= rate * gradient
        agent.report(group.step, total, loss=loss[0])

Who should take part stands in a file that the scheduler replaces; who does take part is settled among the members, so
training goes on while the scheduler is away. A newcomer is waited for by nobody: it knocks when it has booted, and gets
the state with its welcome. A step counts when its sum was handed out; a member that dies costs the others one step done
again, never one lost.

One member leads: it adds up and hands out. When it goes, those left call each other; the first of them in order of
start leads, and takes the state of whoever is farthest. A process that can be called is alive, which is exact on one
machine; between machines that lose sight of each other this module is not for you. Without Sterna a group has one
member.

Arrays are anything with a contiguous buffer: NumPy's, or `array.array`. NumPy is used if the script uses it.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from sterna.agent.membership import Member
from sterna.agent.process import HERE, Process
from sterna.agent.stopping import EXIT_CODE
from sterna.agent.wire import Kind, Link, Message, accepted, called, group_key, is_key, listening

Identity = tuple[int, int]

_GLANCE_SECONDS = 0.02
"""How often a process that is not in a group yet looks for others."""
_PATIENCE_SECONDS = 1.0
"""How long a process that was asked to stop still waits for the others."""


class Group:
    """Those who train together, as one of them sees it."""

    def __init__(self, state: Sequence[Any], step: int = 0, process: Process = HERE) -> None:
        self.step = step
        self.rank, self.size, self.generation = 0, 1, 0
        self.is_member = True
        self._state = [_bytes(each) for each in state]
        self._process = process
        self._me: Identity = process.membership.identity
        self._links: dict[Identity, Link] = {}
        self._knocking: dict[Identity, Link] = {}
        self._steps: dict[Identity, int] = {}
        self._active: list[Identity] = [self._me]
        self._leader: Link | None = None
        self._epoch = 0
        self._has_been_in = False
        self._is_looking = False
        self._listener: socket.socket | None = None
        if process.membership.path:
            self._key = group_key(process.shared_folder)
            try:
                self._assemble()
            except BaseException:
                self.close()
                raise

    def sum(self, *arrays: Any) -> bool:
        """Add up over all members, in place. True: done, and `step` is one higher. False: the group has changed, and
        with it rank and size, maybe state and step; do the step again."""
        parts = [_bytes(each) for each in arrays]
        try:
            is_done = self._lead(arrays, parts) if self._leader is None else self._follow(parts)
        except ConnectionError:
            self._assemble()
            is_done = False
        if is_done:
            self.step += 1
        elif self._process.stopping.is_asked:
            self._process.should_stop()
            if not self.is_member:
                raise SystemExit(EXIT_CODE)
        return is_done

    def close(self) -> None:
        """Leave; the others go on."""
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # --- one step ---

    def _follow(self, parts: Sequence[memoryview]) -> bool:
        assert self._leader is not None
        self._leader.send(Kind.PART, *parts, epoch=self._epoch, step=self.step)
        while True:
            message = self._leader.receive(_size(parts))
            if message.kind == Kind.SUM and message.epoch == self._epoch:
                _fill(parts, message.body)
                return True
            if message.kind == Kind.REGROUP and message.step == self.step:
                self._enter(message)
                return False
            if message.kind == Kind.REMOVED:
                self._leave()
                return False
            raise ConnectionError("not understood")

    def _lead(self, arrays: Sequence[Any], parts: Sequence[memoryview]) -> bool:
        if self._listener is None:
            return self.is_member
        self._answer_the_door()
        if self._has_changed():
            self._regroup()
            return False
        received = self._parts_of_all(_size(parts))
        if received is None:
            self._regroup()
            return False
        for identity in self._active:
            if identity in received:
                _add(arrays, received[identity])
        for identity, link in list(self._links.items()):
            try:
                link.send(Kind.SUM, *parts, epoch=self._epoch, step=self.step)
            except ConnectionError:
                self._drop(identity)  # noticed by the next step
        return True

    def _parts_of_all(self, size: int) -> dict[Identity, bytearray] | None:
        """What each of the others adds; None if one of them is gone."""
        received: dict[Identity, bytearray] = {}
        began = time.monotonic()
        while len(received) < len(self._links):
            for identity in self._ready(self._links, _PATIENCE_SECONDS):
                try:
                    message = self._links[identity].receive(size)
                except ConnectionError:
                    self._drop(identity)
                    return None
                if message.kind == Kind.PART and message.epoch == self._epoch and len(message.body) == size:
                    received[identity] = message.body
            if self._process.stopping.is_asked and time.monotonic() - began > _PATIENCE_SECONDS:
                raise ConnectionError("this process was asked to stop")
        return received

    # --- who takes part ---

    def _wanted(self) -> list[Member]:
        """Members that should take part and can."""
        here = {self._me, *self._links, *self._knocking}
        return [member for member in self._process.membership.world().members if member.identity in here]

    def _has_changed(self) -> bool:
        wanted = self._wanted()
        identities = [member.identity for member in wanted]
        # One that left and knocks again is a newcomer, though the list of names is the same.
        if identities != self._active or not self._knocking.keys().isdisjoint(identities):
            return True
        world = self._process.membership.world()
        return world.generation != self.generation and len(wanted) == world.size

    def _regroup(self) -> None:
        """Tell everybody the new ranks; give newcomers the state."""
        wanted = self._wanted()
        identities = [member.identity for member in wanted]
        if self._me not in identities:
            self._leave()
            return
        self._epoch += 1
        for identity in [each for each in self._links if each not in identities]:
            self._tell_removed(identity)
        generation = self._process.membership.world().generation
        for rank, identity in enumerate(identities):
            place = {"rank": rank, "size": len(identities), "generation": generation}
            try:
                if identity in self._knocking:
                    self._welcome(identity, place)
                elif identity in self._links:
                    self._links[identity].send_document(Kind.REGROUP, place, self._epoch, self.step)
            except ConnectionError:
                self._drop(identity)  # the next step finds it missing and regroups
        self._active = identities
        self._take_place(identities.index(self._me), len(identities), generation)

    def _welcome(self, identity: Identity, place: dict[str, Any]) -> None:
        if identity in self._links:
            self._links.pop(identity).close()
        link = self._links[identity] = self._knocking.pop(identity)
        link.send_document(Kind.WELCOME, place, self._epoch, self.step)
        link.send(Kind.STATE, *self._state, epoch=self._epoch, step=self.step)

    def _tell_removed(self, identity: Identity) -> None:
        with suppress(ConnectionError):
            self._links[identity].send(Kind.REMOVED)
        self._drop(identity)

    def _enter(self, message: Message) -> None:
        place = message.document()
        self._epoch = message.epoch
        self._take_place(int(place["rank"]), int(place["size"]), int(place["generation"]))

    def _take_place(self, rank: int, size: int, generation: int) -> None:
        self.rank, self.size, self.generation = rank, size, generation
        self._has_been_in = True
        self._process.membership.in_force = generation

    def _leave(self) -> None:
        """Taken out by the scheduler: the process behaves as if it had been asked to stop, which it will be."""
        self.is_member = False
        self.close()
        self._process.stopping.is_asked = True

    # --- finding each other ---

    def _assemble(self) -> None:
        """Be let in by whoever leads, or be the first of those who look for a leader."""
        self._hang_up()
        self._is_looking = True
        calls: dict[Identity, Link] = {}
        answered: set[Identity] = set()
        try:
            while not self._process.stopping.is_asked:
                me = self._place_in_world()
                if me is None:
                    if self._has_been_in:
                        self._leave()
                        return
                    time.sleep(_GLANCE_SECONDS)
                    continue
                if self._listener is None:
                    self._listener = listening(me.address)
                self._call_others(calls)
                reached = set(calls)
                if self._is_welcomed(calls, answered):
                    return
                if reached != set(calls):
                    continue  # somebody hung up, maybe to be called again: look once more before leading alone
                if answered.issuperset(calls) and all(each > self._me for each in (*calls, *self._knocking)):
                    self._begin_to_lead()
                    return
            self._settle_rank()
        finally:
            self._is_looking = False
            for link in calls.values():
                if link is not self._leader:
                    link.close()

    def _place_in_world(self) -> Member | None:
        members = self._process.membership.world().members
        return next((member for member in members if member.identity == self._me), None)

    def _call_others(self, calls: dict[Identity, Link]) -> None:
        hello = {"key": self._key, "attempt": self._me[0], "index": self._me[1]}
        for member in self._process.membership.world().members:
            if member.identity == self._me or member.identity in calls:
                continue
            link = called(member.address, self._gives_up)
            if link is None:
                continue
            try:
                link.send_document(Kind.HELLO, hello, step=self.step)
                calls[member.identity] = link
            except ConnectionError:
                link.close()

    def _is_welcomed(self, calls: dict[Identity, Link], answered: set[Identity]) -> bool:
        """Answer who knocks, hear what those called say; True once one of them lets this process in."""
        for identity in self._ready(calls, _GLANCE_SECONDS):
            link = calls[identity]
            try:
                message = link.receive()
                if message.kind == Kind.JOINING:
                    answered.add(identity)
                elif message.kind == Kind.FETCH:
                    link.send(Kind.STATE, *self._state, step=self.step)
                elif message.kind == Kind.WELCOME:
                    self._take_state(link.receive(_size(self._state)))
                    self._leader = link
                    self._enter(message)
                    return True
                else:
                    raise ConnectionError("not understood")
            except ConnectionError:
                link.close()
                del calls[identity]
                answered.discard(identity)
        for identity in [each for each, link in self._knocking.items() if link.is_gone()]:
            self._knocking.pop(identity).close()
        return False

    def _begin_to_lead(self) -> None:
        """Take the state of whoever is farthest, then let everybody in."""
        ahead = sorted((self._steps[each], each) for each in self._knocking if self._steps[each] > self.step)
        while ahead:
            _, identity = ahead.pop()
            link = self._knocking[identity]
            try:
                link.send(Kind.FETCH)
                self._take_state(link.receive(_size(self._state)))
                break
            except ConnectionError:
                self._knocking.pop(identity).close()
        self._leader = None
        self._regroup()

    def _take_state(self, message: Message) -> None:
        if message.kind != Kind.STATE:
            raise ConnectionError("not understood")
        if len(message.body) != _size(self._state):
            raise ValueError(
                f"The group trains arrays of {len(message.body):,} bytes and this process has {_size(self._state):,}: "
                "start every worker with the same model."
            )
        _fill(self._state, message.body)
        self.step = message.step

    def _settle_rank(self) -> None:
        """Asked to stop with nobody leading: nobody is waited for, but one must know that it is the one who saves."""
        me = self._place_in_world()
        before = [each for each in self._process.membership.world().members if me is not None and each.rank < me.rank]
        links = [link for link in (called(each.address, self._gives_up) for each in before) if link is not None]
        self.rank = len(links)
        for link in links:
            link.close()

    def _answer_the_door(self) -> None:
        """Take in whoever has knocked; nobody is waited for."""
        for _ in self._ready({}, 0):
            pass

    def _ready(self, links: dict[Identity, Link], wait_seconds: float) -> Iterator[Identity]:
        """Those of the links that have something to say; who knocks meanwhile is noted, and answered unless this
        process leads already."""
        poll = select.poll()
        owners = {link.fileno(): identity for identity, link in links.items()}
        for descriptor in owners:
            poll.register(descriptor, select.POLLIN)
        door = self._listener.fileno() if self._listener is not None else -1
        if door >= 0:
            poll.register(door, select.POLLIN)
        for descriptor, _ in poll.poll(wait_seconds * 1000):
            if descriptor == door:
                self._meet()
            else:
                yield owners[descriptor]

    def _meet(self) -> None:
        assert self._listener is not None
        link = accepted(self._listener, self._gives_up)
        if link is None:
            return
        try:
            message = link.receive(is_brief=True)
            hello = message.document()
            if message.kind != Kind.HELLO or not is_key(hello.get("key"), self._key):
                raise ConnectionError("not understood")
            identity = (int(hello["attempt"]), int(hello["index"]))
            if link.is_gone():
                raise ConnectionError("the other side is gone")
            if self._is_looking:
                link.send(Kind.JOINING)
        except (ConnectionError, KeyError, TypeError, ValueError):
            link.close()
            return
        if identity in self._knocking:
            self._knocking[identity].close()
        self._knocking[identity] = link
        self._steps[identity] = message.step

    def _gives_up(self) -> bool:
        return self._process.stopping.is_asked

    def _drop(self, identity: Identity) -> None:
        link = self._links.pop(identity, None)
        if link is not None:
            link.close()

    def _hang_up(self) -> None:
        for link in (*self._links.values(), *self._knocking.values(), *((self._leader,) if self._leader else ())):
            link.close()
        self._links, self._knocking, self._leader = {}, {}, None


def _bytes(array: Any) -> memoryview:
    view = memoryview(array)
    if view.readonly or not view.c_contiguous:
        raise ValueError("An elastic group needs arrays that are contiguous and can be written to.")
    return view.cast("B")


def _size(parts: Sequence[memoryview]) -> int:
    return sum(len(part) for part in parts)


def _fill(parts: Sequence[memoryview], body: bytearray) -> None:
    at = 0
    for part in parts:
        part[:] = memoryview(body)[at : at + len(part)]
        at += len(part)


def _add(arrays: Sequence[Any], body: bytearray) -> None:
    numpy = sys.modules.get("numpy")
    at = 0
    for array in arrays:
        whole = memoryview(array)
        mine = whole.cast("B").cast(whole.format)  # type: ignore[call-overload]
        theirs = memoryview(body)[at : at + whole.nbytes].cast(whole.format)  # type: ignore[call-overload]
        at += whole.nbytes
        if numpy is not None:
            into = numpy.frombuffer(mine, dtype=whole.format)
            into += numpy.frombuffer(theirs, dtype=whole.format)
        else:
            for position, value in enumerate(theirs):
                mine[position] += value
