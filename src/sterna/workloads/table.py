"""A CSV file as typed columns with line numbers, for the loaders of this package.

Every error names file, line, column, the value found and the value expected. Formats define which columns are required.
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
from sterna.workloads.domain import Domain, FloatColumn
from sterna.workloads.trace import Trace

_LONGEST_QUOTE = 40
_COMMENT = re.compile("^#[^\r\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of a CSV file without comments and empty lines; at least one."""

    source: str
    width: int
    """Number of fields of every record."""
    cells: list[str]
    """All rows in one flat list: a list per row spent half of the reading time in the garbage collector."""
    lines: list[int]
    ragged: tuple[int, int] | None
    """Line and number of fields of the first record with another width; reading stopped there."""

    @property
    def first(self) -> list[str]:
        return [cell.strip() for cell in self.cells[: self.width]]


def read_rows(source: str, text: str) -> Rows:
    # A comment becomes an empty line, so that line numbers stay those of the file.
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
    """Spellings of a missing number."""

    @classmethod
    def of(cls, rows: Rows, header: Sequence[str] | None = None) -> Table:
        """Name the columns by the first record, or by `header` for files without one."""
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
        """Return a column without surrounding blanks; empty texts if there is no such column."""
        return tuple(map(str.strip, self.columns[column])) if column in self.columns else ("",) * len(self)

    def numbers(self, column: str, domain: Domain, blank: float | None = None) -> FloatColumn:
        """Parse a column. A missing value becomes `blank`; without `blank` it is an error."""
        cells = self.columns[column]
        try:
            # One check for all cells: a check per cell takes as long as parsing.
            read = float if is_plain("".join(cells)) else real
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
            raise self.rejection(row, column, domain.describe_valid(float(values[row])))
        return values

    def seconds(self, column: str) -> FloatColumn:
        """Parse a column of dates as seconds since 1970; NaN for missing ones."""
        moments = read_dates(self.columns[column])
        if moments.unreadable is not None:
            raise self.rejection(moments.unreadable, column, "a date like 2017-10-09 07:01:55")
        return moments.seconds

    def rejection(self, row: int, column: str, expected: str) -> UserError:
        found = self.columns[column][row].strip()
        what = f"'{found[:_LONGEST_QUOTE]}'" if found else "nothing"
        where = f"{self.source}, line {self.lines[row]}, column '{column}'"
        return UserError(f"{where}: found {what}, expected {expected}.")


@dataclass(frozen=True, slots=True)
class Format:
    """A CSV format, recognised by its columns."""

    kind: str
    required: tuple[str, ...]
    read: Callable[[Table], Trace]


def _number(cell: str) -> float:
    try:
        return real(cell)
    except ValueError:
        return float("nan")
