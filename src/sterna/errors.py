"""All exceptions that Sterna raises.

    SternaError
    ├── UserError   wrong input: one sentence with what is wrong, where, and what to do next; exit code 2 or HTTP 4xx
    │   └── ParameterError   wrong value of one parameter, which the caller may know by another name
    ├── Retry       a temporary failure of the environment: the caller retries with back-off
    └── Bug         a violated invariant: the round stops, the journal is kept

Exceptions of libraries are translated into one of these where they are caught; nothing else reaches a user.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SternaError(Exception):
    """Base class of all exceptions of Sterna."""


class UserError(SternaError):
    """Wrong input. The message is one sentence with what to do next; nothing has been stored."""


class ParameterError(UserError):
    """Wrong value of one parameter; the caller may know it by another name, such as a flag."""

    def __init__(self, parameter: str, wrong: str) -> None:
        super().__init__(f"{parameter}: {wrong}")
        self.parameter, self.wrong = parameter, wrong


class Retry(SternaError):
    """Temporary failure of the environment; the same call may succeed later."""


class Bug(SternaError):
    """Violated invariant of Sterna; never the user's fault."""

    def __init__(self, sentence: str, row: int | None = None) -> None:
        super().__init__(sentence)
        self.row = row
        """Row of the affected job in the snapshot; None if more than one is."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that rejects `word`: the nearest known word, or all of them."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word.lower(), [w.lower() for w in words], n=1, cutoff=0.6)
    for candidate in words:
        if near and candidate.lower() == near[0]:
            return f"did you mean '{candidate}'?"
    return f"choose one of: {', '.join(words)}." if words else "there are none."
