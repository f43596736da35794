"""The wish to stop: SIGTERM sets a flag, and saving happens between two steps, never inside a signal handler.

A handler that saves tears files: it runs in the middle of whatever the process does, a save included. After a save
`saved.json` says so and the process ends with code 143, what a shell shows for SIGTERM. A save that raises is told on
stderr, claims nothing, and is tried again a second later as long as the process is let live.

SIGINT stays what it was (Ctrl-C interrupts), but waits while a save runs. A second SIGTERM changes nothing under
Sterna, which repeats itself after a restart and kills when the grace is over; elsewhere it ends the process at once,
unless a save is running.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from sterna.agent.reporting import Reporter

EXIT_CODE = 143
FILE = "saved.json"

_RETRY_SECONDS = 1.0
_LINGER_SECONDS = 10.0
"""How long a process that has saved may take to end, with threads and clean-up of its own, before it is ended."""


class Stopping:
    """Whether this process was asked to stop, and what it does about it."""

    def __init__(self, folder: str, reporter: Reporter, last_words: str = "") -> None:
        """`last_words`: a file of the container runtime, whose content outlives the container in the pod's status."""
        self.is_asked = False
        self.save: Callable[[], object] | None = None
        self._folder = folder
        self._last_words = last_words
        self._reporter = reporter
        self._is_saving = False
        self._listens = False
        self._before: Any = signal.SIG_DFL
        self._not_before = 0.0

    def listen(self) -> None:
        """Take over SIGTERM. Only the main thread can; elsewhere the signal keeps its meaning."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            return
        with suppress(ValueError, OSError):
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
            self._listens = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked and not self._folder and not self._is_saving:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        self.is_asked = True

    def act(self) -> None:
        """Save and end, if there is something to save with."""
        if self.save is None or self._is_saving or time.monotonic() < self._not_before:
            return
        self._is_saving = True
        interrupts = _HeldInterrupts()
        try:
            self.save()
        except Exception:
            self._complain()
            self._is_saving = False
            self._not_before = time.monotonic() + _RETRY_SECONDS
            interrupts.release()
            return
        self.write_saved(None)
        self._end()

    def write_saved(self, step: int | None) -> None:
        """Say that a checkpoint is complete: durably, because a scheduler will rely on it."""
        at, step = time.time(), self._reporter.step if step is None else step
        try:
            self._reporter.note_saved(step, at)
            if self._folder:
                _write_durably(self._folder, {"step": step, "at": at})
        except (OSError, TypeError, ValueError):
            self._complain()
        if self._last_words:
            self._leave_word(step, at)

    def _leave_word(self, step: int | None, at: float) -> None:
        """Say so where it is read without a network when the container has ended. `saved`: when it was asked to stop;
        a checkpoint of its own accord only says of which step it is."""
        record = {"saved": self.is_asked, "step": step, "at": at}
        with suppress(OSError, TypeError, ValueError):
            # The file is mounted into the container: it is written over, never replaced.
            handle = os.open(self._last_words, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(handle, json.dumps(record).encode())
            finally:
                os.close(handle)

    def forked(self) -> None:
        """A child is not asked when its parent is, and must still end when somebody terminates it."""
        self.is_asked, self.save, self._is_saving = False, None, False
        if self._listens:
            self._listens = False
            with suppress(ValueError, OSError, TypeError):
                if signal.getsignal(signal.SIGTERM) == self._on_signal:
                    signal.signal(signal.SIGTERM, self._before)

    def _end(self) -> None:
        self._reporter.flush()
        with suppress(RuntimeError):  # the interpreter is going down already
            threading.Thread(target=_end_at_last, name="sterna-agent-end", daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(EXIT_CODE)
        _end_now()

    def _complain(self) -> None:
        with suppress(OSError, ValueError):
            print("sterna.agent: the checkpoint could not be saved:", file=sys.stderr)
            traceback.print_exc()


class _HeldInterrupts:
    """Ctrl-C waits while this holds. A handler, not a mask: the signal may reach any thread, and then interrupts the
    main one all the same."""

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False
        with suppress(ValueError, OSError):
            self._before = signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True

    def release(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._came:
            os.kill(os.getpid(), signal.SIGINT)


def _write_durably(folder: str, record: dict[str, Any]) -> None:
    path = os.path.join(folder, FILE)
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    holder = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(holder)
    finally:
        os.close(holder)


def _end_at_last() -> None:
    time.sleep(_LINGER_SECONDS)
    _end_now()


def _end_now() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(EXIT_CODE)
