"""User errors for callers from Python: options are shared with the command line, whose errors name flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sterna.errors import UserError

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Name arguments instead of flags in user errors: `restart_cost`, not `--restart-cost`."""
    try:
        yield
    except UserError as error:
        raise UserError(_FLAG.sub(lambda flag: flag[1].replace("-", "_"), str(error))) from None
