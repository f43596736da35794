"""Columns as a data frame of the library that is installed: pandas, else polars, else the plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sterna.errors import UserError, did_you_mean

LIBRARIES = ("pandas", "polars")
COLUMNS = "columns"
"""Name of the choice that needs no library."""

FrameColumns = Mapping[str, Sequence[object]]


def make_frame(columns: FrameColumns, library: str | None = None) -> Any:
    """Return a `DataFrame` of the library; None takes the first of `LIBRARIES` that is installed, else the columns."""
    if library is None:
        library = next((name for name in LIBRARIES if find_spec(name)), COLUMNS)
    if library == COLUMNS:
        return dict(columns)
    if library not in LIBRARIES:
        raise UserError(f"'{library}' makes no data frames; {did_you_mean(library, (*LIBRARIES, COLUMNS))}")
    try:
        return import_module(library).DataFrame(dict(columns))
    except ImportError:
        raise UserError(
            f"{library} is not installed: run pip install {library}, or ask for '{COLUMNS}', which needs no library."
        ) from None
