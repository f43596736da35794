"""All that one pod tells: the agent's files, its output, and the files it was declared to write.

Volumes appear a moment after the pod, and a claim's folder is found only then; so places are looked for until they are
there. A CSV file that was only guessed counts once the pod has written to it; until then its output does. Nothing here
raises for what a pod has written, or for what is not there.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from sterna.backends.kubernetes.monitor.host_paths import Place, Roots, agent_place, log_folder, place_of
from sterna.backends.kubernetes.monitor.output import ContainerOutput
from sterna.backends.kubernetes.monitor.pods import NodePod, is_csv_guessed, progress_of
from sterna.progress.reports import ProgressReader, Report
from sterna.progress.tail import Position

_SAVED_FILE = "saved.json"
_SAVED_BYTES = 4096


class PodReader:
    """Reads one pod, as long as it is there."""

    def __init__(self, pod: NodePod, roots: Roots) -> None:
        self._pod, self._roots = pod, roots
        self._spec, self._is_guess = progress_of(pod), is_csv_guessed(pod)
        self._agent = agent_place(pod, roots)
        self._saved_at = 0.0
        self._csv: Place | None = None
        self._events: Place | None = None
        trainer = pod.trainer
        self._output = ContainerOutput(log_folder(pod, trainer, roots), self._spec.stdout) if trainer else None
        self._reader = self._made()

    def see(self, pod: NodePod) -> None:
        """The pod as it is now; what it was declared to write never changes."""
        self._pod = pod

    def poll(self, is_last: bool = False) -> list[Report]:
        """What is new since the last look."""
        if self._is_incomplete():
            self._look()
        found = self._reader.poll(is_last)
        self._saved_at = max([self._saved_at, *(report.at for report in found if report.saved)])
        return found + (self._saved() if is_last else [])

    def close(self) -> None:
        self._reader.close()

    def _is_incomplete(self) -> bool:
        return bool((self._spec.csv and self._csv is None) or (self._spec.tensorboard and self._events is None))

    def _look(self) -> None:
        csv = self._csv or place_of(self._pod, self._spec.csv, self._roots)
        if csv is not None and self._is_guess and not _is_written_since(csv.path, self._pod.started_at):
            csv = None
        events = self._events or place_of(self._pod, self._spec.tensorboard, self._roots)
        if (csv, events) != (self._csv, self._events):
            self._csv, self._events = csv, events
            positions = self._reader.positions
            self._reader.close()
            self._reader = self._made(positions)

    def _made(self, positions: dict[str, Position] | None = None) -> ProgressReader:
        places = {"agent": self._agent, "csv": self._csv, "tensorboard": self._events}
        # Rows that bear no time are spread over the pod's life so far: nobody has looked before.
        begun = {"csv": Position(0, 0, 0, self._pod.started_at)} if self._pod.started_at else {}
        return ProgressReader(
            self._agent.path,
            replace(self._spec, csv=_path(self._csv), tensorboard=_path(self._events)),
            positions=begun | (positions or {}),
            output=self._output,
            inside={source: place.inside for source, place in places.items() if place is not None},
        )

    def _saved(self) -> list[Report]:
        """What its last word says of a checkpoint, if a full disk kept it out of the reports."""
        record = _record(self._agent)
        at, step = record.get("at"), record.get("step")
        if not isinstance(at, int | float) or isinstance(at, bool) or at <= self._saved_at:
            return []
        self._saved_at = float(at)
        return [Report(float(at), step if isinstance(step, int) else None, None, {}, saved=True)]


def _is_written_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment
    except OSError:
        return False


def _path(place: Place | None) -> str:
    return "" if place is None else str(place.path)


def _record(place: Place) -> dict[str, Any]:
    path: Path = place.path / _SAVED_FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return {}
    try:
        found = msgspec.json.decode(os.read(handle, _SAVED_BYTES))
    except (OSError, msgspec.DecodeError, ValueError, RecursionError):
        return {}
    finally:
        os.close(handle)
    return found if isinstance(found, dict) else {}
