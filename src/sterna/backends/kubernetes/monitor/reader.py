"""Read the progress of one pod: the agent's files, its output, and the files of declared sources.

Volumes are mounted a moment after the pod appears, so declared files are searched until they are found. A guessed CSV
file counts once the pod has written to it; until then its output is read. Nothing here raises for missing or malformed
files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from sterna.backends.kubernetes.monitor.host_paths import HostPath, Roots, agent_place, log_folder, place_of
from sterna.backends.kubernetes.monitor.output import ContainerOutput
from sterna.backends.kubernetes.monitor.pods import NodePod, is_csv_guessed, progress_of
from sterna.model.job import ProgressSpec
from sterna.progress.reader import ProgressReader
from sterna.progress.registry import find_source
from sterna.progress.report import SourceReport
from sterna.progress.tail import Position

_SAVED_FILE = "saved.json"
_SAVED_BYTES = 4096


class PodReader:
    """Reads one pod while it exists."""

    def __init__(self, pod: NodePod, roots: Roots) -> None:
        self._pod, self._roots = pod, roots
        self._spec, self._is_guess = progress_of(pod), is_csv_guessed(pod)
        self._agent = agent_place(pod, roots)
        self._saved_at = 0.0
        self._places: dict[str, HostPath] = {}
        """Files and folders of declared sources that have been found, by source."""
        trainer, patterns = pod.trainer, self._spec.sources.get("stdout", ())
        self._output = ContainerOutput(log_folder(pod, trainer, roots), patterns) if trainer else None
        self._reader = self._open()

    def see(self, pod: NodePod) -> None:
        """Store the current state of the pod; its declared sources never change."""
        self._pod = pod

    def poll(self, is_last: bool = False) -> list[SourceReport]:
        """Reports since the last poll."""
        missing = [name for name in self._paths if name not in self._places]
        if missing:
            self._find(missing)
        found = self._reader.poll(is_last)
        self._saved_at = max([self._saved_at, *(report.at for report in found if report.saved)])
        return found + (self._last_checkpoint() if is_last else [])

    @property
    def saves_on_request(self) -> bool:
        """True if a process of the pod has registered a function that saves when it is asked to stop."""
        return self._reader.has_registered

    def close(self) -> None:
        self._reader.close()

    @property
    def _paths(self) -> dict[str, str]:
        """Paths that the pod declares, by source."""
        kinds = {name: find_source(name) for name in self._spec.sources}
        paths = {name: kind.path(self._spec.sources[name]) for name, kind in kinds.items() if kind is not None}
        return {name: path for name, path in paths.items() if path}

    def _find(self, missing: Sequence[str]) -> None:
        found = {}
        for name in missing:
            place = place_of(self._pod, self._paths[name], self._roots)
            is_unused_guess = name == "csv" and self._is_guess and place is not None
            if place is None or (is_unused_guess and not _is_written_since(place.path, self._pod.started_at)):
                continue
            found[name] = place
        if found:
            self._places |= found
            positions = self._reader.positions
            self._reader.close()
            self._reader = self._open(positions)

    def _open(self, positions: dict[str, Position] | None = None) -> ProgressReader:
        places = {"agent": self._agent, **self._places}
        # Rows without a time are spread over the pod's life so far, because there was no poll before.
        started_at = self._pod.started_at
        begun = {name: Position(0, 0, 0, started_at) for name in self._places} if started_at else {}
        return ProgressReader(
            self._agent.path,
            self._available_spec(),
            positions=begun | (positions or {}),
            output=self._output,
            inside={source: place.inside for source, place in places.items()},
            paths={source: place.path for source, place in self._places.items()},
        )

    def _available_spec(self) -> ProgressSpec:
        """The specification without sources whose files are not there yet, so that the output counts until then."""
        missing = self._paths.keys() - self._places.keys()
        sources = {name: each for name, each in self._spec.sources.items() if name not in missing}
        return replace(self._spec, sources=sources)

    def _last_checkpoint(self) -> list[SourceReport]:
        """The checkpoint in the agent's last record, if a full disk kept it out of the reports."""
        record = _record(self._agent)
        at, step = record.get("at"), record.get("step")
        if not isinstance(at, int | float) or isinstance(at, bool) or at <= self._saved_at:
            return []
        self._saved_at = float(at)
        return [SourceReport(float(at), step if isinstance(step, int) else None, None, {}, saved=True)]


def _is_written_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment
    except OSError:
        return False


def _record(place: HostPath) -> dict[str, Any]:
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
