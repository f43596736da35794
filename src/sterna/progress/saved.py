"""Output that was saved, read as the readers of a running job would: what they would see, and what not.

For `sterna try-pattern`. All of the file is read, however long, a piece at a time.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.errors import UserError
from sterna.progress.lines import LineReader
from sterna.progress.names import Counted, is_rising, main_metric
from sterna.progress.registry import all_sources
from sterna.progress.source_kind import SourceKind
from sterna.progress.tail import lines_in

_EXAMPLES = 5
"""Shown of the beginning, and as many of the end."""
_LONGEST_SHOWN = 100


@dataclass
class Saved:
    """What was found in a file."""

    lines: int = 0
    matched: int = 0
    patterns: Counter[str] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    last: list[dict[str, Any]] = field(default_factory=list)
    metrics: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)
    example: str = ""
    """A line with a number that no pattern understood."""
    has_patterns: bool = False
    without_value: int = 0
    backwards: int = 0
    _step: int = -1

    def take(self, said: Counted, pattern: str) -> None:
        self.matched += 1
        self.patterns[pattern] += 1
        self.metrics.update(said.metrics.keys())
        self.without_value += None in said.metrics.values()
        if said.step is not None:
            self.backwards += said.step < self._step
            self._step = said.step
        row = {"line": self.lines, "step": said.step, "total": said.total, "metrics": said.metrics}
        if len(self.first) < _EXAMPLES:
            self.first.append(row)
        else:
            self.last = [*self.last[1 - _EXAMPLES :], row]

    def conclude(self) -> None:
        """What a user should know though it is no error."""
        if self.without_value:
            self.notices.append(f"{self.without_value:,} of the matched lines hold a value that is no number (NaN).")
        if self.backwards:
            self.notices.append(
                f"The step goes back {self.backwards:,} times; if it is counted anew in each epoch, print one that is "
                "not, or growth is judged on the first epoch only."
            )

    def document(self) -> dict[str, Any]:
        metric = main_metric(self.metrics)
        return {
            "lines": self.lines,
            "matched": self.matched,
            "patterns": dict(self.patterns.most_common()),
            "metric": metric,
            "goal": ("max" if is_rising(metric) else "min") if metric else "",
            "metrics": dict(self.metrics.most_common()),
            "examples": self.first + self.last,
            "notices": self.notices,
        }

    def what_to_do(self, path: str) -> str:
        seen = f", for example '{self.example}'" if self.example else ""
        start = f"{path}: 0 of {self.lines:,} lines matched{seen};"
        if not self.lines:
            return f"{path}: the file is empty; save the output of a training that printed its progress."
        if self.has_patterns:
            return f"{start} change --pattern, or leave it out to try the built-in ones."
        return (
            f"{start} print lines like 'step=10/500 loss=0.31', or give --pattern with named groups, as in "
            "'step (?P<step>\\d+) loss (?P<loss>\\S+)'."
        )


def read_saved(path: str, patterns: Sequence[str] = ()) -> Saved:
    """All that would be read of a file: as CSV or event file if its name says so, else line by line."""
    found = Saved(has_patterns=bool(patterns))
    reader = LineReader(patterns)
    try:
        name = os.path.basename(path)
        source = next((each for each in all_sources() if each.read_file and each.reads_file(name)), None)
        if source is not None and not patterns:
            _read_rows(path, source, found)
        else:
            _read_lines(path, reader, found)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; give one of the files in it.") from None
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise UserError(f"{path}: the gzip data is damaged or cut off; fetch the file again.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); choose another file.") from None
    found.notices += reader.notices
    found.conclude()
    return found


def _read_lines(path: str, reader: LineReader, found: Saved) -> None:
    for line in lines_in(path):
        found.lines += 1
        read = reader.read(line)
        if read is not None:
            found.take(read.said, read.pattern)
        elif not found.example and re.search(rb"\d", line):
            found.example = line.decode("utf-8", "replace").strip()[:_LONGEST_SHOWN]


def _read_rows(path: str, source: SourceKind, found: Saved) -> None:
    assert source.read_file is not None
    for line, said in source.read_file(path):
        found.lines += 1
        if said is not None:
            found.take(said, source.title or source.name)
        elif not found.example:
            found.example = line.decode("utf-8", "replace").strip()[:_LONGEST_SHOWN]
