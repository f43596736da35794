"""All trace formats, and `load_trace`, which detects the format by the contents of a file, never by its name.

A CSV has the format that requires most of its columns; JSON is Philly's. To add a layout, declare it in a module of its
own and list it here.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from sterna.errors import UserError, did_you_mean
from sterna.workloads.formats import alibaba, bench, helios, itp, native, philly, rubick, tiresias
from sterna.workloads.table import Format, Rows, Table, read_rows
from sterna.workloads.text import read_text
from sterna.workloads.trace import Trace

_LAYOUTS = (
    *(philly.FLAT, helios.LOG, helios.SLICE, alibaba.TASKS, alibaba.JOBS),
    *(itp.JOBS, bench.JOBS, tiresias.JOBS, rubick.JOBS),
)
_FORMATS = {each.kind: each for each in (native.FORMAT, *(layout.format for layout in _LAYOUTS))}

KINDS = tuple(sorted([philly.JSON_KIND, *_FORMATS]))
"""Names of all formats."""

_NEAR = 0.5
"""Least fraction of its columns for a format to be suggested in an error."""
_ALIKE = 0.7
"""Least similarity of two columns for one to be suggested as the other."""
_MOST_NAMES, _LONGEST_NAME = 12, 30


def load_trace(path: str | Path, kind: str | None = None) -> Trace:
    """Load a file, plain or gzipped. `kind`, one of `KINDS`, overrides the detected format."""
    if kind is not None and kind not in KINDS:
        raise UserError(f"'{kind}' is not a format of traces; {did_you_mean(kind, KINDS)}")
    source = str(path)
    text = read_text(path)
    if kind == philly.JSON_KIND or (kind is None and text.lstrip()[:1] in ("[", "{")):
        return philly.read_json(source, text)
    return _read_csv(read_rows(source, text), kind)


def _read_csv(rows: Rows, kind: str | None) -> Trace:
    found = rows.first
    fitting = [each for each in _FORMATS.values() if set(each.required) <= set(found) and kind in (None, each.kind)]
    if fitting:
        return max(fitting, key=lambda each: len(each.required)).read(Table.of(rows))
    if kind in (None, alibaba.TASKS.kind):
        header = alibaba.absent_header(rows.source, found)
        if header is not None:
            return alibaba.TASKS.read(Table.of(rows, header))
    raise _misfit(rows, found, kind)


def _misfit(rows: Rows, found: list[str], kind: str | None) -> UserError:
    where = f"{rows.source}, line {rows.lines[0]}"
    if len(found) == 1 and (";" in found[0] or "\t" in found[0]):
        separator = "semicolons" if ";" in found[0] else "tabs"
        return UserError(f"{where}: the columns are separated by {separator}; separate them by commas.")
    seen = f"{where}: found the columns {_list_names(found)}"
    if kind is not None:
        return UserError(f"{seen}; {_lack(_FORMATS[kind], found)}")
    nearest = max(_FORMATS.values(), key=lambda each: _likeness(each, found))
    advice = f"convert it to native, which needs {', '.join(native.REQUIRED)}."
    if _likeness(nearest, found) >= _NEAR:
        advice = _lack(nearest, found)
    return UserError(f"{seen}, which are those of no known format ({', '.join(KINDS)}); {advice}")


def _lack(nearest: Format, found: list[str]) -> str:
    """Return the end of a sentence: the missing columns, and the one that may be misspelt."""
    missing = [column for column in nearest.required if column not in found]
    needs = f"{nearest.kind} needs {', '.join(repr(column) for column in missing)} as well"
    strangers = [name for name in found if name not in nearest.required]
    for column in missing:
        for stranger in difflib.get_close_matches(column, strangers, n=1, cutoff=_ALIKE):
            return f"{needs}; for '{stranger}', {did_you_mean(stranger, [column])}"
    return f"{needs}."


def _likeness(each: Format, found: list[str]) -> float:
    """Return the fraction of the format's columns that are present; a similar column counts half."""

    def weight(column: str) -> float:
        return 1.0 if column in found else 0.5 * bool(difflib.get_close_matches(column, found, cutoff=_ALIKE))

    return sum(map(weight, each.required)) / len(each.required)


def _list_names(found: list[str]) -> str:
    names = [name[:_LONGEST_NAME] for name in found[:_MOST_NAMES]]
    return ", ".join(names) + (" and more" if len(found) > _MOST_NAMES else "")
