"""Progress reports as lines of JSON in a file, at most a few a second.

A file survives whoever reads it and keeps the history. A report that follows another too closely waits in memory, its
metrics laid over those that wait already; the next one, a small thread, or the end of the process writes it. The thread
exists only in processes that report more often than lines are written.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

FILE = "progress.jsonl"

INTERVAL_SECONDS = 0.25
"""Least time between two lines; also the longest a report waits."""

_OPENING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Reporter:
    """Appends to one file. May be used by several threads; errors of the disk are not the training's problem."""

    def __init__(self, folder: str) -> None:
        self.step: int | None = None
        self._total: int | None = None
        self._path = os.path.join(folder, FILE) if folder else ""
        self._file = -1
        self._is_torn = False
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler of the script may report, too
        self._metrics: dict[str, float | None] = {}
        self._waits = False
        self._at = 0.0
        self._cpu_seconds = 0.0
        self._generation = 0
        self._due = 0.0
        self._thread: threading.Thread | None = None

    def report(self, step: Any, total: Any, metrics: Mapping[str, Any], generation: int) -> None:
        """Write it now, or soon."""
        try:
            if step is not None:
                self.step = step if type(step) is int else _whole(step)
            if self._path:
                with self._lock:
                    self._keep(total, metrics, generation)
        except Exception:
            return  # training is never disturbed by whoever watches it

    def _keep(self, total: Any, metrics: Mapping[str, Any], generation: int) -> None:
        if total is not None:
            self._total = total if type(total) is int else _whole(total)
        for name, value in metrics.items():
            if type(value) is float and value - value == 0.0:  # finite
                self._metrics[name] = value
            else:
                self._take(name, value)
        is_news = generation != self._generation
        self._generation = generation
        self._at = time.time()
        self._cpu_seconds = time.process_time()
        self._waits = True
        now = time.monotonic()
        if now >= self._due or is_news:
            self._due = now + INTERVAL_SECONDS
            self._write()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._write_what_waits, name="sterna-agent", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if self._waits:
                self._write()

    def note_saved(self, step: int | None, at: float) -> None:
        """A line that says that a checkpoint is complete; never held back."""
        with self._lock:
            if self._path:
                self.flush()
                self._append({"t": at, "step": step, "total": self._total, "metrics": {}}, is_saved=True)

    def forked(self) -> None:
        self._start_over()

    def _take(self, name: str, value: Any) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            return  # no number: a name, a whole tensor
        self._metrics[name] = number if math.isfinite(number) else None

    def _write(self) -> None:
        line = {"t": self._at, "step": self.step, "total": self._total, "metrics": self._metrics}
        self._append(line | {"cpu": round(self._cpu_seconds, 6)})
        self._waits = False
        self._metrics = {}

    def _append(self, line: dict[str, Any], is_saved: bool = False) -> None:
        line["generation"] = self._generation
        if is_saved:
            line["saved"] = True
        try:
            data = self._encode(line).encode() + b"\n"
            if self._is_torn:
                data = b"\n" + data
            if self._file < 0:
                self._file = os.open(self._path, _OPENING, 0o644)
            self._is_torn = os.write(self._file, data) < len(data)
        except (OSError, ValueError, TypeError):
            return  # disk full or folder gone: the next line may find it better

    def _write_what_waits(self) -> None:
        mine = threading.current_thread()
        while self._thread is mine:
            time.sleep(INTERVAL_SECONDS)
            self.flush()


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
