"""Elastic data-parallel training: sums over a group whose members join and leave while it trains.

    group = elastic.Group([weights, bias], step=start)   # arrays that are changed in place, and the step they are of
    while group.step < total:
        gradient, loss = ...                             # of the slice [group.rank :: group.size] of this step's batch
        if not group.sum(gradient, loss):                # sums over all members, in place
            continue                                     # the group has changed: repeat this step
        weights -= rate * gradient
        agent.report(group.step, total, loss=loss[0])

The desired members are in a file that the scheduler replaces; the members themselves agree on the actual ones, so
training continues without the scheduler. The group never waits for a new member: it connects when it has started, and
receives the state on admission. A step is done when its sum was distributed; the death of a member costs the others one
repeated step, never a lost one.

One member is the leader: it sums and distributes. When it dies, the remaining members connect to each other; the first
of them in start order becomes the leader and takes the most advanced state. A process that accepts connections counts
as alive, which is exact on one machine; this module does not handle network partitions. Without Sterna a group has one
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
from sterna.agent.process import HERE, AgentProcess
from sterna.agent.stopping import EXIT_CODE
from sterna.agent.wire import Link, Message, MessageKind, accept, connect, group_key, is_key, listen

Identity = tuple[int, int]

_POLL_SECONDS = 0.02
"""Poll interval of a process that is not in a group yet."""
_STOP_WAIT_SECONDS = 1.0
"""Maximum wait for the other members after a stop request."""


class Group:
    """A training group, as one member sees it."""

    def __init__(self, state: Sequence[Any], step: int = 0, process: AgentProcess = HERE) -> None:
        self.step = step
        self.rank, self.size, self.generation = 0, 1, 0
        self.is_member = True
        self._state = [_bytes(each) for each in state]
        self._process = process
        self._me: Identity = process.membership.identity
        self._links: dict[Identity, Link] = {}
        self._pending: dict[Identity, Link] = {}
        self._steps: dict[Identity, int] = {}
        self._active: list[Identity] = [self._me]
        self._leader: Link | None = None
        self._epoch = 0
        self._has_been_in = False
        self._is_joining = False
        self._listener: socket.socket | None = None
        if process.membership.path:
            self._key = group_key(process.shared_folder)
            try:
                self._join_group()
            except BaseException:
                self.close()
                raise

    def sum(self, *arrays: Any) -> bool:
        """Sum over all members, in place. True: done, and `step` is one higher. False: the group has changed (rank,
        size, possibly state and step); repeat the step."""
        parts = [_bytes(each) for each in arrays]
        try:
            is_done = self._lead(arrays, parts) if self._leader is None else self._follow(parts)
        except ConnectionError:
            self._join_group()
            is_done = False
        if is_done:
            self.step += 1
        elif self._process.stopping.is_asked:
            self._process.should_stop()
            if not self.is_member:
                raise SystemExit(EXIT_CODE)
        return is_done

    def close(self) -> None:
        """Leave the group; the other members continue."""
        self._close_links()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # --- one step ---

    def _follow(self, parts: Sequence[memoryview]) -> bool:
        assert self._leader is not None
        self._leader.send(MessageKind.PART, *parts, epoch=self._epoch, step=self.step)
        while True:
            message = self._leader.receive(_size(parts))
            if message.kind == MessageKind.SUM and message.epoch == self._epoch:
                _fill(parts, message.body)
                return True
            if message.kind == MessageKind.REGROUP and message.step == self.step:
                self._enter(message)
                return False
            if message.kind == MessageKind.REMOVED:
                self._leave()
                return False
            raise ConnectionError("not understood")

    def _lead(self, arrays: Sequence[Any], parts: Sequence[memoryview]) -> bool:
        if self._listener is None:
            return self.is_member
        self._accept_pending()
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
                link.send(MessageKind.SUM, *parts, epoch=self._epoch, step=self.step)
            except ConnectionError:
                self._drop(identity)  # the next step detects it
        return True

    def _parts_of_all(self, size: int) -> dict[Identity, bytearray] | None:
        """Receive the parts of all other members; None if one of them is gone."""
        received: dict[Identity, bytearray] = {}
        began = time.monotonic()
        while len(received) < len(self._links):
            for identity in self._poll_links(self._links, _STOP_WAIT_SECONDS):
                try:
                    message = self._links[identity].receive(size)
                except ConnectionError:
                    self._drop(identity)
                    return None
                if message.kind == MessageKind.PART and message.epoch == self._epoch and len(message.body) == size:
                    received[identity] = message.body
            if self._process.stopping.is_asked and time.monotonic() - began > _STOP_WAIT_SECONDS:
                raise ConnectionError("this process was asked to stop")
        return received

    # --- membership ---

    def _available_members(self) -> list[Member]:
        """Return the desired members that are connected."""
        here = {self._me, *self._links, *self._pending}
        return [member for member in self._process.membership.world().members if member.identity in here]

    def _has_changed(self) -> bool:
        wanted = self._available_members()
        identities = [member.identity for member in wanted]
        # A member that left and connects again is new, although the identities are equal.
        if identities != self._active or not self._pending.keys().isdisjoint(identities):
            return True
        world = self._process.membership.world()
        return world.generation != self.generation and len(wanted) == world.size

    def _regroup(self) -> None:
        """Send the new ranks to all members, and the state to new ones."""
        wanted = self._available_members()
        identities = [member.identity for member in wanted]
        if self._me not in identities:
            self._leave()
            return
        self._epoch += 1
        for identity in [each for each in self._links if each not in identities]:
            self._remove(identity)
        generation = self._process.membership.world().generation
        for rank, identity in enumerate(identities):
            place = {"rank": rank, "size": len(identities), "generation": generation}
            try:
                if identity in self._pending:
                    self._admit(identity, place)
                elif identity in self._links:
                    self._links[identity].send_document(MessageKind.REGROUP, place, self._epoch, self.step)
            except ConnectionError:
                self._drop(identity)  # the next step detects it and regroups
        self._active = identities
        self._set_rank(identities.index(self._me), len(identities), generation)

    def _admit(self, identity: Identity, place: dict[str, Any]) -> None:
        if identity in self._links:
            self._links.pop(identity).close()
        link = self._links[identity] = self._pending.pop(identity)
        link.send_document(MessageKind.WELCOME, place, self._epoch, self.step)
        link.send(MessageKind.STATE, *self._state, epoch=self._epoch, step=self.step)

    def _remove(self, identity: Identity) -> None:
        with suppress(ConnectionError):
            self._links[identity].send(MessageKind.REMOVED)
        self._drop(identity)

    def _enter(self, message: Message) -> None:
        place = message.document()
        self._epoch = message.epoch
        self._set_rank(int(place["rank"]), int(place["size"]), int(place["generation"]))

    def _set_rank(self, rank: int, size: int, generation: int) -> None:
        self.rank, self.size, self.generation = rank, size, generation
        self._has_been_in = True
        self._process.membership.in_force = generation

    def _leave(self) -> None:
        """Handle removal by the scheduler: behave as after a stop request, which follows."""
        self.is_member = False
        self.close()
        self._process.stopping.is_asked = True

    # --- forming a group ---

    def _join_group(self) -> None:
        """Join the leader's group, or become the leader if this is the first of the joining members."""
        self._close_links()
        self._is_joining = True
        calls: dict[Identity, Link] = {}
        answered: set[Identity] = set()
        try:
            while not self._process.stopping.is_asked:
                me = self._own_member()
                if me is None:
                    if self._has_been_in:
                        self._leave()
                        return
                    time.sleep(_POLL_SECONDS)
                    continue
                if self._listener is None:
                    self._listener = listen(me.address)
                self._connect_to_members(calls)
                reached = set(calls)
                if self._process_replies(calls, answered):
                    return
                if reached != set(calls):
                    continue  # a peer closed its link, maybe to reconnect: check again before leading alone
                if answered.issuperset(calls) and all(each > self._me for each in (*calls, *self._pending)):
                    self._become_leader()
                    return
            self._assign_stop_rank()
        finally:
            self._is_joining = False
            for link in calls.values():
                if link is not self._leader:
                    link.close()

    def _own_member(self) -> Member | None:
        members = self._process.membership.world().members
        return next((member for member in members if member.identity == self._me), None)

    def _connect_to_members(self, calls: dict[Identity, Link]) -> None:
        hello = {"key": self._key, "attempt": self._me[0], "index": self._me[1]}
        for member in self._process.membership.world().members:
            if member.identity == self._me or member.identity in calls:
                continue
            link = connect(member.address, self._is_stopping)
            if link is None:
                continue
            try:
                link.send_document(MessageKind.HELLO, hello, step=self.step)
                calls[member.identity] = link
            except ConnectionError:
                link.close()

    def _process_replies(self, calls: dict[Identity, Link], answered: set[Identity]) -> bool:
        """Process replies and new connections; True once a leader has admitted this process."""
        for identity in self._poll_links(calls, _POLL_SECONDS):
            link = calls[identity]
            try:
                message = link.receive()
                if message.kind == MessageKind.JOINING:
                    answered.add(identity)
                elif message.kind == MessageKind.FETCH:
                    link.send(MessageKind.STATE, *self._state, step=self.step)
                elif message.kind == MessageKind.WELCOME:
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
        for identity in [each for each, link in self._pending.items() if link.is_gone()]:
            self._pending.pop(identity).close()
        return False

    def _become_leader(self) -> None:
        """Take the most advanced state, then admit all pending members."""
        ahead = sorted((self._steps[each], each) for each in self._pending if self._steps[each] > self.step)
        while ahead:
            _, identity = ahead.pop()
            link = self._pending[identity]
            try:
                link.send(MessageKind.FETCH)
                self._take_state(link.receive(_size(self._state)))
                break
            except ConnectionError:
                self._pending.pop(identity).close()
        self._leader = None
        self._regroup()

    def _take_state(self, message: Message) -> None:
        if message.kind != MessageKind.STATE:
            raise ConnectionError("not understood")
        if len(message.body) != _size(self._state):
            raise ValueError(
                f"The group trains arrays of {len(message.body):,} bytes and this process has {_size(self._state):,}: "
                "start every worker with the same model."
            )
        _fill(self._state, message.body)
        self.step = message.step

    def _assign_stop_rank(self) -> None:
        """Set a rank after a stop request without a leader, so that exactly one member saves."""
        me = self._own_member()
        before = [each for each in self._process.membership.world().members if me is not None and each.rank < me.rank]
        links = [link for link in (connect(each.address, self._is_stopping) for each in before) if link is not None]
        self.rank = len(links)
        for link in links:
            link.close()

    def _accept_pending(self) -> None:
        """Accept pending connections without blocking."""
        for _ in self._poll_links({}, 0):
            pass

    def _poll_links(self, links: dict[Identity, Link], wait_seconds: float) -> Iterator[Identity]:
        """Yield the links that are readable. New connections are accepted meanwhile, and answered while this process is
        joining itself."""
        poll = select.poll()
        owners = {link.fileno(): identity for identity, link in links.items()}
        for descriptor in owners:
            poll.register(descriptor, select.POLLIN)
        door = self._listener.fileno() if self._listener is not None else -1
        if door >= 0:
            poll.register(door, select.POLLIN)
        for descriptor, _ in poll.poll(wait_seconds * 1000):
            if descriptor == door:
                self._accept_connection()
            else:
                yield owners[descriptor]

    def _accept_connection(self) -> None:
        assert self._listener is not None
        link = accept(self._listener, self._is_stopping)
        if link is None:
            return
        try:
            message = link.receive(is_unknown_peer=True)
            hello = message.document()
            if message.kind != MessageKind.HELLO or not is_key(hello.get("key"), self._key):
                raise ConnectionError("not understood")
            identity = (int(hello["attempt"]), int(hello["index"]))
            if link.is_gone():
                raise ConnectionError("the other side is gone")
            if self._is_joining:
                link.send(MessageKind.JOINING)
        except (ConnectionError, KeyError, TypeError, ValueError):
            link.close()
            return
        if identity in self._pending:
            self._pending[identity].close()
        self._pending[identity] = link
        self._steps[identity] = message.step

    def _is_stopping(self) -> bool:
        return self._process.stopping.is_asked

    def _drop(self, identity: Identity) -> None:
        link = self._links.pop(identity, None)
        if link is not None:
            link.close()

    def _close_links(self) -> None:
        for link in (*self._links.values(), *self._pending.values(), *((self._leader,) if self._leader else ())):
            link.close()
        self._links, self._pending, self._leader = {}, {}, None


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
