"""A CSV file as typed columns that know their lines, for the loaders of this package.

Every refusal names file, line, column, what was found and what is expected. A table knows nothing of jobs: which
columns there must be, and what they mean, is each format's own business.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.errors import UserError
from sterna.parse_number import is_plain, real
from sterna.workloads.dates import BLANKS, read_dates
from sterna.workloads.domain import Domain, Floats
from sterna.workloads.trace import Trace

_LONGEST_QUOTE = 40
_COMMENT = re.compile("^#[^\r\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of a CSV file as they stand, comments and empty lines dropped; at least one."""

    source: str
    width: int
    """Fields of the first record, and of all others."""
    cells: list[str]
    """Row after row in one list: with a list for each row, half the time of reading went to the garbage collector."""
    lines: list[int]
    ragged: tuple[int, int] | None
    """Line and fields of the first record with another width. Nothing was read from there on."""

    @property
    def first(self) -> list[str]:
        return [cell.strip() for cell in self.cells[: self.width]]


def read_rows(source: str, text: str) -> Rows:
    # A comment becomes an empty line, not none, so that the reader's line numbers stay those of the file.
    uncommented = _COMMENT.sub("", text) if "#" in text else text
    reader = csv.reader(io.StringIO(uncommented, newline=""), strict=True)
    width = 0
    cells: list[str] = []
    lines: list[int] = []
    try:
        for record in reader:
            if len(record) < 2 and not "".join(record).strip():
                continue
            width = width or len(record)
            if len(record) != width:
                return Rows(source, width, cells, lines, (reader.line_num, len(record)))
            cells += record
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(f"{source}, line {reader.line_num}: this is not CSV ({error}); check the quotes.") from error
    if not cells:
        raise UserError(f"{source}: the file is empty; expected a header line and one line per job.")
    return Rows(source, width, cells, lines, None)


@dataclass(frozen=True, slots=True)
class Table:
    source: str
    columns: dict[str, tuple[str, ...]]
    lines: Sequence[int]
    blanks: frozenset[str] = BLANKS
    """What stands for a missing number."""

    @classmethod
    def of(cls, rows: Rows, header: Sequence[str] | None = None) -> Table:
        """Columns by name. The first record names them, unless the file has no header and the caller knows it."""
        names = rows.first if header is None else list(header)
        skip = 1 if header is None else 0
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{rows.source}, line {rows.lines[0]}: the column '{name}' is there twice; remove one.")
        if rows.ragged is not None:
            line, fields = rows.ragged
            found = "1 field" if fields == 1 else f"{fields} fields"
            raise UserError(f"{rows.source}, line {line}: found {found}, expected {len(names)}: {', '.join(names)}.")
        if len(rows.lines) == skip:
            raise UserError(f"{rows.source}: the trace has no jobs; add a line for each below the header.")
        start = skip * rows.width
        columns = {name: tuple(rows.cells[start + place :: rows.width]) for place, name in enumerate(names)}
        return cls(rows.source, columns, rows.lines[skip:])

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def text(self, column: str) -> tuple[str, ...]:
        """Without surrounding blanks; empty where there is no such column."""
        return tuple(map(str.strip, self.columns[column])) if column in self.columns else ("",) * len(self)

    def numbers(self, column: str, domain: Domain, blank: float | None = None) -> Floats:
        """All of a column. A missing value becomes `blank`, and is refused where no `blank` is given."""
        cells = self.columns[column]
        try:
            read = float if is_plain("".join(cells)) else real  # all at once: one by one takes as long as reading them
            values = np.fromiter(map(read, cells), np.float64, len(cells))
        except ValueError:
            values = np.array([_number(cell) for cell in cells])
        present = np.arange(len(cells))
        if blank is not None and np.isnan(values).any():
            missing = np.isnan(values)
            missing[missing] = [cells[row].strip().lower() in self.blanks for row in np.flatnonzero(missing)]
            values[missing] = blank
            present = np.flatnonzero(~missing)
        outside = domain.first_outside(values[present])
        if outside is not None:
            row = int(present[outside])
            raise self.refusal(row, column, domain.expected(float(values[row])))
        return values

    def seconds(self, column: str) -> Floats:
        """A column of dates as seconds since 1970, NaN where one is missing."""
        moments = read_dates(self.columns[column])
        if moments.unreadable is not None:
            raise self.refusal(moments.unreadable, column, "a date like 2017-10-09 07:01:55")
        return moments.seconds

    def refusal(self, row: int, column: str, expected: str) -> UserError:
        found = self.columns[column][row].strip()
        what = f"'{found[:_LONGEST_QUOTE]}'" if found else "nothing"
        where = f"{self.source}, line {self.lines[row]}, column '{column}'"
        return UserError(f"{where}: found {what}, expected {expected}.")


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a trace as CSV. It is recognised by its columns."""

    kind: str
    required: tuple[str, ...]
    read: Callable[[Table], Trace]


def _number(cell: str) -> float:
    try:
        return real(cell)
    except ValueError:
        return float("nan")
