"""Sleep until a process exits, another thread calls, or a timeout.

Descriptors are watched with epoll, which has no limit of 1,024 descriptors as `select` does.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection
from typing import Protocol


class Wakeups(Protocol):
    """Interface by which a backend sleeps; tests use a virtual clock."""

    def follow(self, name: str, descriptor: int, /) -> None:
        """Report when this descriptor becomes readable; it is then closed, as when it is dropped."""
        ...

    def drop(self, name: str, /) -> None: ...

    def wake(self) -> None:
        """End the current or the next sleep. Any thread may call."""
        ...

    def wait(self, seconds: float | None, /) -> Collection[str] | None:
        """Return the names of readable descriptors, at the latest after `seconds`; None if there will be no more
        events."""
        ...

    def close(self) -> None: ...


class EpollWakeups:
    """The implementation on epoll."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.EPOLLIN)
        self._names: dict[int, str] = {}
        self._descriptors: dict[str, int] = {}

    def follow(self, name: str, descriptor: int) -> None:
        self.drop(name)
        self._names[descriptor] = name
        self._descriptors[name] = descriptor
        self._poll.register(descriptor, select.EPOLLIN)

    def drop(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            del self._names[descriptor]
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def wait(self, seconds: float | None) -> Collection[str]:
        found = self._poll.poll(-1 if seconds is None else max(seconds, 0.0))
        ended = []
        for descriptor, _ in found:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
            else:
                ended.append(self._names[descriptor])
        for name in ended:
            self.drop(name)
        return ended

    def close(self) -> None:
        for name in list(self._descriptors):
            self.drop(name)
        self._poll.close()
        os.close(self._bell)
