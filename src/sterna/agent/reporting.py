"""Progress reports as lines of JSON in a file, at most four a second.

A file outlives its reader and keeps the history. A report within `INTERVAL_SECONDS` of the last line is merged into the
pending one, which the next report, a small thread, or the exit of the process writes. The thread exists only in
processes that report more often than lines are written.
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
"""Minimum time between two lines, and maximum delay of a report."""

_OPENING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Reporter:
    """Appender to one file. Thread-safe; disk errors never reach the training code."""

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
        self._is_pending = False
        self._at = 0.0
        self._cpu_seconds = 0.0
        self._generation = 0
        self._due = 0.0
        self._thread: threading.Thread | None = None

    def report(self, step: Any, total: Any, metrics: Mapping[str, Any], generation: int) -> None:
        """Write the report now, or within `INTERVAL_SECONDS`."""
        try:
            if step is not None:
                self.step = step if type(step) is int else _whole(step)
            if self._path:
                with self._lock:
                    self._merge(total, metrics, generation)
        except Exception:
            return  # reporting never disturbs the training

    def _merge(self, total: Any, metrics: Mapping[str, Any], generation: int) -> None:
        if total is not None:
            self._total = total if type(total) is int else _whole(total)
        for name, value in metrics.items():
            if type(value) is float and value - value == 0.0:  # finite
                self._metrics[name] = value
            else:
                self._add_metric(name, value)
        is_news = generation != self._generation
        self._generation = generation
        self._at = time.time()
        self._cpu_seconds = time.process_time()
        self._is_pending = True
        now = time.monotonic()
        if now >= self._due or is_news:
            self._due = now + INTERVAL_SECONDS
            self._write()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._flush_periodically, name="sterna-agent", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Write the pending report."""
        with self._lock:
            if self._is_pending:
                self._write()

    def write_saved_line(self, step: int | None, at: float) -> None:
        """Append a line that marks a complete checkpoint, without delay."""
        with self._lock:
            if self._path:
                self.flush()
                self._append({"t": at, "step": step, "total": self._total, "metrics": {}}, is_saved=True)

    def reset_after_fork(self) -> None:
        self._start_over()

    def _add_metric(self, name: str, value: Any) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            return  # not a number: a string, a whole tensor
        self._metrics[name] = number if math.isfinite(number) else None

    def _write(self) -> None:
        line = {"t": self._at, "step": self.step, "total": self._total, "metrics": self._metrics}
        self._append(line | {"cpu": round(self._cpu_seconds, 6)})
        self._is_pending = False
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
            return  # disk full or folder deleted: try again with the next line

    def _flush_periodically(self) -> None:
        mine = threading.current_thread()
        while self._thread is mine:
            time.sleep(INTERVAL_SECONDS)
            self.flush()


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
