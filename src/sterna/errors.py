"""Everything that can go wrong, on one page.

    SternaError
    ├── UserError   their input: one sentence saying what is wrong, where, and what to do next; exit code 2 or HTTP 4xx
    │   └── ParameterError   one parameter of it, which whoever called may know by another name
    ├── Retry       the world: the loop tries again with back-off
    └── Bug         an invariant of ours: the round stops, the journal is kept

Library exceptions are translated into one of these where they first appear; nothing else reaches a user.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SternaError(Exception):
    """Root of every error that Sterna raises on purpose."""


class UserError(SternaError):
    """The input is wrong; the message is one sentence with what to do next. Nothing has been stored."""


class ParameterError(UserError):
    """One parameter is wrong; whoever called may have a name of its own for it, such as a flag."""

    def __init__(self, parameter: str, wrong: str) -> None:
        super().__init__(f"{parameter}: {wrong}")
        self.parameter, self.wrong = parameter, wrong


class Retry(SternaError):
    """The world did not answer as hoped; the same call may succeed later."""


class Bug(SternaError):
    """An invariant of ours does not hold. Never the user's fault."""

    def __init__(self, sentence: str, row: int | None = None) -> None:
        super().__init__(sentence)
        self.row = row
        """The one job that it is about, by its row in the snapshot; none: it is about more than one."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence that rejects `word`: the nearest known word, or all of them."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word.lower(), [w.lower() for w in words], n=1, cutoff=0.6)
    for candidate in words:
        if near and candidate.lower() == near[0]:
            return f"did you mean '{candidate}'?"
    return f"choose one of: {', '.join(words)}." if words else "there are none."
