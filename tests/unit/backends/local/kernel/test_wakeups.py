"""Wake-ups of the daemon by threads and by file descriptors."""

from __future__ import annotations

import os
import threading

import pytest

from sterna.backends.local.kernel.wakeups import EpollWakeups


def test_wait_returns_for_wake_calls_and_for_descriptors() -> None:
    wakeups = EpollWakeups()
    reading, writing = os.pipe()
    wakeups.follow("pipe", reading)
    assert list(wakeups.wait(0.0)) == []
    os.write(writing, b"x")
    assert list(wakeups.wait(None)) == ["pipe"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    caller = threading.Thread(target=wakeups.wake)
    caller.start()
    assert list(wakeups.wait(None)) == []
    caller.join()
    os.close(writing)
    wakeups.close()
