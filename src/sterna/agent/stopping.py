"""Stop requests: SIGTERM sets a flag, and the save runs between two steps, never inside the signal handler.

A handler that saves can tear files, because it may interrupt another save. After a save, `saved.json` is written and
the process ends with code 143, the shell's code for SIGTERM. A save that raises prints its traceback to stderr, marks
nothing as saved, and is retried after a second.

SIGINT keeps its handler (Ctrl-C interrupts) but is deferred while a save runs. Under Sterna a second SIGTERM changes
nothing: the scheduler repeats the signal after its own restart, and kills after the grace period. Without Sterna it
ends the process at once, unless a save is running.
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
REGISTERED_FILE = "registered"
"""Empty file that tells the scheduler that this process saves when it is asked to stop."""

_RETRY_SECONDS = 1.0
_LINGER_SECONDS = 10.0
"""Time for `finally` and `atexit` handlers after the save, before the process is ended by force."""


class Stopping:
    """The stop request of this process and the save that answers it."""

    def __init__(self, folder: str, reporter: Reporter, termination_log: str = "") -> None:
        """`termination_log`: file of the container runtime whose content is kept in the pod's status."""
        self.is_asked = False
        self.save: Callable[[], object] | None = None
        self._folder = folder
        self._termination_log = termination_log
        self._reporter = reporter
        self._is_saving = self._is_registered = False
        self._listens = False
        self._before: Any = signal.SIG_DFL
        self._not_before = 0.0

    def register(self) -> None:
        """Answer stop requests from now on, and tell the scheduler once that this process does."""
        self.listen()
        if self._is_registered:
            return
        self._is_registered = True
        if self._folder:
            with suppress(OSError):  # a job that is not known to save is only stopped less often
                path = os.path.join(self._folder, REGISTERED_FILE)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def listen(self) -> None:
        """Install the SIGTERM handler. Only the main thread can; in other threads this does nothing."""
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
        """Save and exit, if a save function is registered."""
        if self.save is None or self._is_saving or time.monotonic() < self._not_before:
            return
        self._is_saving = True
        interrupts = _DeferredInterrupts()
        try:
            self.save()
        except Exception:
            self._print_error()
            self._is_saving = False
            self._not_before = time.monotonic() + _RETRY_SECONDS
            interrupts.release()
            return
        self.write_saved(None)
        self._exit()

    def write_saved(self, step: int | None) -> None:
        """Record a complete checkpoint, flushed to disk, because the scheduler relies on it."""
        at, step = time.time(), self._reporter.step if step is None else step
        try:
            self._reporter.write_saved_line(step, at)
            if self._folder:
                _write_durably(self._folder, {"step": step, "at": at})
        except (OSError, TypeError, ValueError):
            self._print_error()
        if self._termination_log:
            self._write_termination_log(step, at)

    def _write_termination_log(self, step: int | None, at: float) -> None:
        """Write the termination log, which needs no network. `saved` is true only for a save after a stop request; a
        periodic checkpoint records its step."""
        record = {"saved": self.is_asked, "step": step, "at": at}
        with suppress(OSError, TypeError, ValueError):
            # The file is a bind mount: truncate and write, never replace.
            handle = os.open(self._termination_log, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(handle, json.dumps(record).encode())
            finally:
                os.close(handle)

    def reset_after_fork(self) -> None:
        """Reset in a forked child: it does not inherit the stop request, and SIGTERM must still end it."""
        self.is_asked, self.save, self._is_saving = False, None, False
        if self._listens:
            self._listens = False
            with suppress(ValueError, OSError, TypeError):
                if signal.getsignal(signal.SIGTERM) == self._on_signal:
                    signal.signal(signal.SIGTERM, self._before)

    def _exit(self) -> None:
        self._reporter.flush()
        with suppress(RuntimeError):  # the interpreter is shutting down
            threading.Thread(target=_exit_after_linger, name="sterna-agent-end", daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(EXIT_CODE)
        _exit_now()

    def _print_error(self) -> None:
        with suppress(OSError, ValueError):
            print("sterna.agent: the checkpoint could not be saved:", file=sys.stderr)
            traceback.print_exc()


class _DeferredInterrupts:
    """Defers SIGINT until `release`. A handler, not a signal mask: the signal may be delivered to any thread and then
    interrupts the main one."""

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


def _exit_after_linger() -> None:
    time.sleep(_LINGER_SECONDS)
    _exit_now()


def _exit_now() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(EXIT_CODE)
