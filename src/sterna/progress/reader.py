"""Read the progress of one replica from all of its sources, as reports of one shape.

One reader per running replica. It reads the agent's file, the captured output, and the sources that the job declares
(`ProgressSpec`). A poll that finds nothing costs microseconds, so that one loop polls hundreds of replicas several
times a second. It never raises for what a job has written, never blocks, and keeps nothing but positions in files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from sterna.model.job import ProgressSpec
from sterna.progress.registry import find_source
from sterna.progress.report import OutputSource, Positions, Source, SourceReport
from sterna.progress.source_kind import SourceFiles
from sterna.progress.sources.agent import AgentSource
from sterna.progress.sources.stdout import StdoutSource
from sterna.progress.tail import Position

AGENT, STDOUT = "agent", "stdout"


class ProgressReader:
    """Reads everything that one replica reports."""

    def __init__(
        self,
        folder: Path,
        spec: ProgressSpec | None = None,
        working_dir: Path | None = None,
        positions: Mapping[str, Position] | None = None,
        clock: Callable[[], float] = time.time,
        output: OutputSource | None = None,
        inside: Mapping[str, Path] | None = None,
        paths: Mapping[str, Path] | None = None,
    ) -> None:
        """`output`: reads the output where it is not a file in the folder. `inside`: by source, a folder that links may
        not lead out of. `paths`: where the files of declared sources are, by source; a source whose file is not among
        them is left out. None: below the working folder."""
        spec = spec or ProgressSpec()
        self._total = spec.total or None
        kept = dict(positions or {})

        def files(name: str, path: Path) -> SourceFiles:
            own = {key: each for key, each in kept.items() if key == name or key.startswith(f"{name}:")}
            return SourceFiles(folder, path, (inside or {}).get(name, ""), own, clock)

        self._agent = AgentSource(files(AGENT, folder))
        patterns = spec.sources.get(STDOUT) or ()
        self._log = output or StdoutSource(patterns, files(STDOUT, folder))
        self._others: list[Source] = []
        for name, parameters in spec.sources.items():
            kind = find_source(name)
            if kind is None or kind.is_always_on:
                continue
            declared = kind.path(parameters)
            if declared and paths is not None and name not in paths:
                continue
            path = paths[name] if declared and paths is not None else (working_dir or folder) / declared
            self._others.append(kind.open(parameters, files(name, path)))
        self._reads_log = bool(patterns) or not self._others
        self._may_drop_log = not patterns

    def poll(self, is_last: bool = False) -> list[SourceReport]:
        """Reports since the last poll, source by source. `is_last`: the replica has ended, so an unfinished line counts
        too."""
        found = self._agent.poll(is_last)
        if self._reads_log:
            if self._may_drop_log and self._agent.has_reported:
                # What a script prints beside its reports would count every step twice.
                self._reads_log = False
                self._log.close()
            else:
                found += self._log.poll(is_last)
        for source in self._others:
            found += source.poll(is_last)
        if self._total is not None:
            found = [each if each.total is not None else _with_total(each, self._total) for each in found]
        return found

    @property
    def positions(self) -> Positions:
        """Positions at which the next reader of the same replica continues."""
        found = self._agent.positions() | self._log.positions()
        for source in self._others:
            found |= source.positions()
        return found

    @property
    def has_registered(self) -> bool:
        """True if the process had, at the last poll, registered a function that saves when it is asked to stop."""
        return self._agent.has_registered

    @property
    def notices(self) -> list[str]:
        """Notices for the user about how the output is read."""
        return self._log.notices

    def close(self) -> None:
        for source in cast("list[Source]", [self._agent, self._log, *self._others]):
            source.close()


def _with_total(report: SourceReport, total: int) -> SourceReport:
    return msgspec.structs.replace(report, total=total)
