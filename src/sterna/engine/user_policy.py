"""A policy that somebody brought along: what it answers is checked, and what goes wrong in it is said to be its own.

The policies that are shipped keep the same by their tests, and pay for none of this in a round.
"""

from __future__ import annotations

import math
import traceback
from numbers import Real

import numpy as np

from sterna.engine.registry import Policy, Target
from sterna.errors import UserError
from sterna.model.cluster import Ints
from sterna.model.formatting import format_count
from sterna.model.snapshot import Snapshot


class Guarded:
    """A policy from a file, and the words that it was asked for with."""

    def __init__(self, policy: Policy, spec: str, file: str) -> None:
        self.policy, self._spec, self._file = policy, spec, file

    def __call__(self, snapshot: Snapshot) -> Target:
        order: object = None
        try:
            wish = self.policy(snapshot)
            if isinstance(wish, Target) and wish.order is not None:
                order = wish.order()
        except (Exception, SystemExit) as error:
            raise UserError(f"The policy '{self._spec}' failed ({_told(error, self._file)}).") from None
        try:
            return _checked(wish, order, snapshot)
        except _Refusal as error:
            raise UserError(f"The policy '{self._spec}' {error}") from None


class _Refusal(Exception):  # noqa: N818 (the rest of a sentence, for `Guarded` alone)
    """What is wrong with an answer, as the end of a sentence."""


def _told(error: BaseException, file: str) -> str:
    """What was raised, and the last line of the user's own that led to it."""
    lines = traceback.extract_tb(error.__traceback__)
    last = next((line for line in reversed(lines) if line.filename == file), lines[-1])
    return f"{type(error).__name__}: {error}, {last.filename}, line {last.lineno}"


def _checked(wish: object, order: object, snapshot: Snapshot) -> Target:
    """The same answer, fit for those who go by it."""
    if not isinstance(wish, Target):
        raise _Refusal(f"answers with {type(wish).__name__}; it must be a Target.")
    workers = _workers(wish, len(snapshot.jobs))
    _check_bounds(workers, snapshot)
    _check_sum(workers, snapshot)
    if not isinstance(wish.until, Real) or math.isnan(wish.until) or wish.until <= snapshot.now:
        raise _Refusal(
            f"is to be asked again at {wish.until}; it must be a number after {snapshot.now:g}, the time now."
        )
    promoted = wish.promoted
    if promoted is not None and np.shape(promoted) != workers.shape:
        raise _Refusal(f"gives promotions of the shape {np.shape(promoted)}; it must be {workers.shape}.")
    rows = None if order is None else _rows(order, len(workers))
    return wish._replace(workers=workers, until=float(wish.until), order=None if rows is None else lambda: rows)


def _rows(order: object, jobs: int) -> Ints:
    rows = np.asarray(order)
    if rows.shape != (jobs,) or rows.dtype.kind not in "iu" or not (np.sort(rows) == np.arange(jobs)).all():
        raise _Refusal(f"gives an order that is none; it must hold each row from 0 to {jobs - 1} once.")
    return rows.astype(np.int64, copy=False)


def _workers(wish: Target, jobs: int) -> Ints:
    try:
        workers = np.asarray(wish.workers)
    except ValueError:
        raise _Refusal("gives workers that are no array; it must be one whole number for each job.") from None
    if workers.shape != (jobs,):
        raise _Refusal(
            f"gives workers of the shape {workers.shape}; it must be one number for each of "
            f"{format_count(jobs, 'job')}."
        )
    if workers.dtype.kind not in "iu":
        raise _Refusal(f"gives workers of the type {workers.dtype}; they must be whole numbers, such as int64.")
    return workers.astype(np.int64, copy=False)


def _check_bounds(workers: Ints, snapshot: Snapshot) -> None:
    least, most = snapshot.jobs.minimum, snapshot.jobs.maximum
    wrong = ((workers != 0) & ((workers < least) | (workers > most))).nonzero()[0]
    if not len(wrong):
        return
    row = wrong.item(0)
    rest = f" or from {least[row]} to {most[row]}" if least[row] <= most[row] else ", as there is no room for it"
    given = format_count(int(workers[row]), "worker")
    raise _Refusal(f"gives {snapshot.jobs.name_of(row)} {given}; it must be 0{rest}.")


def _check_sum(workers: Ints, snapshot: Snapshot) -> None:
    """What is held may be kept, also where a node was lost."""
    wanted, most = int(snapshot.cost(workers).sum()), max(snapshot.units, snapshot.held_units)
    if wanted > most:
        raise _Refusal(f"gives away {wanted} units of {most}; the sum of snapshot.cost must be at most snapshot.units.")
