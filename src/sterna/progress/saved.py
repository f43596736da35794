"""Read saved output as the readers of a running job would, for `sterna try-pattern`.

The whole file is read, a piece at a time.
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
from sterna.progress.names import ProgressRow, is_rising, main_metric
from sterna.progress.registry import all_sources
from sterna.progress.source_kind import SourceKind
from sterna.progress.tail import lines_in

_EXAMPLES = 5
"""Number of examples from the beginning, and from the end."""
_LONGEST_SHOWN = 100


@dataclass
class SavedOutput:
    """Progress found in a file."""

    lines: int = 0
    matched: int = 0
    patterns: Counter[str] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    last: list[dict[str, Any]] = field(default_factory=list)
    metrics: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)
    example: str = ""
    """A line with a number that no pattern matched."""
    has_patterns: bool = False
    without_value: int = 0
    backwards: int = 0
    _step: int = -1

    def take(self, row: ProgressRow, pattern: str) -> None:
        self.matched += 1
        self.patterns[pattern] += 1
        self.metrics.update(row.metrics.keys())
        self.without_value += None in row.metrics.values()
        if row.step is not None:
            self.backwards += row.step < self._step
            self._step = row.step
        example = {"line": self.lines, "step": row.step, "total": row.total, "metrics": row.metrics}
        if len(self.first) < _EXAMPLES:
            self.first.append(example)
        else:
            self.last = [*self.last[1 - _EXAMPLES :], example]

    def conclude(self) -> None:
        """Add notices about what is suspicious but no error."""
        if self.without_value:
            self.notices.append(f"{self.without_value:,} of the matched lines hold a value that is no number (NaN).")
        if self.backwards:
            self.notices.append(
                f"The step goes back {self.backwards:,} times; if it restarts in each epoch, print one that is "
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


def read_saved(path: str, patterns: Sequence[str] = ()) -> SavedOutput:
    """Read a file by the source that its name belongs to, else line by line."""
    found = SavedOutput(has_patterns=bool(patterns))
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


def _read_lines(path: str, reader: LineReader, found: SavedOutput) -> None:
    for line in lines_in(path):
        found.lines += 1
        read = reader.read(line)
        if read is not None:
            found.take(read.row, read.pattern)
        elif not found.example and re.search(rb"\d", line):
            found.example = line.decode("utf-8", "replace").strip()[:_LONGEST_SHOWN]


def _read_rows(path: str, source: SourceKind, found: SavedOutput) -> None:
    assert source.read_file is not None
    for line, row in source.read_file(path):
        found.lines += 1
        if row is not None:
            found.take(row, source.title or source.name)
        elif not found.example:
            found.example = line.decode("utf-8", "replace").strip()[:_LONGEST_SHOWN]
