"""Validation of policies from user files: targets are checked, and failures name the user's file and line.

Built-in policies are not wrapped: their tests check the same properties, so a round does not pay for it.
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


class UserPolicy:
    """A policy from a user's file whose targets are validated; `spec` is the text that selected it."""

    def __init__(self, policy: Policy, spec: str, file: str) -> None:
        self.policy, self._spec, self._file = policy, spec, file

    def __call__(self, snapshot: Snapshot) -> Target:
        order: object = None
        try:
            target = self.policy(snapshot)
            if isinstance(target, Target) and target.order is not None:
                order = target.order()
        except (Exception, SystemExit) as error:
            raise UserError(f"The policy '{self._spec}' failed ({_describe_error(error, self._file)}).") from None
        try:
            return _validate_target(target, order, snapshot)
        except _InvalidTarget as error:
            raise UserError(f"The policy '{self._spec}' {error}") from None


class _InvalidTarget(Exception):  # noqa: N818 (the rest of a sentence, for `UserPolicy` alone)
    """A defect of a target, as the end of a sentence that begins with the policy."""


def _describe_error(error: BaseException, file: str) -> str:
    """Return the exception and the last line of `file` in its traceback."""
    lines = traceback.extract_tb(error.__traceback__)
    last = next((line for line in reversed(lines) if line.filename == file), lines[-1])
    return f"{type(error).__name__}: {error}, {last.filename}, line {last.lineno}"


def _validate_target(target: object, order: object, snapshot: Snapshot) -> Target:
    """Return the target with normalised types; raise `_InvalidTarget` if a rule of the interface is violated."""
    if not isinstance(target, Target):
        raise _InvalidTarget(f"answers with {type(target).__name__}; it must be a Target.")
    workers = _validate_workers(target, len(snapshot.jobs))
    _check_bounds(workers, snapshot)
    _check_sum(workers, snapshot)
    if not isinstance(target.until, Real) or math.isnan(target.until) or target.until <= snapshot.now:
        raise _InvalidTarget(
            f"is to be asked again at {target.until}; it must be a number after {snapshot.now:g}, the time now."
        )
    promoted = target.promoted
    if promoted is not None and np.shape(promoted) != workers.shape:
        raise _InvalidTarget(f"gives promotions of the shape {np.shape(promoted)}; it must be {workers.shape}.")
    rows = None if order is None else _validate_order(order, len(workers))
    return target._replace(workers=workers, until=float(target.until), order=None if rows is None else lambda: rows)


def _validate_order(order: object, jobs: int) -> Ints:
    rows = np.asarray(order)
    if rows.shape != (jobs,) or rows.dtype.kind not in "iu" or not (np.sort(rows) == np.arange(jobs)).all():
        raise _InvalidTarget(f"gives an order that is none; it must hold each row from 0 to {jobs - 1} once.")
    return rows.astype(np.int64, copy=False)


def _validate_workers(target: Target, jobs: int) -> Ints:
    try:
        workers = np.asarray(target.workers)
    except ValueError:
        raise _InvalidTarget("gives workers that are no array; it must be one whole number for each job.") from None
    if workers.shape != (jobs,):
        raise _InvalidTarget(
            f"gives workers of the shape {workers.shape}; it must be one number for each of "
            f"{format_count(jobs, 'job')}."
        )
    if workers.dtype.kind not in "iu":
        raise _InvalidTarget(f"gives workers of the type {workers.dtype}; they must be whole numbers, such as int64.")
    return workers.astype(np.int64, copy=False)


def _check_bounds(workers: Ints, snapshot: Snapshot) -> None:
    least, most = snapshot.jobs.minimum, snapshot.jobs.maximum
    wrong = ((workers != 0) & ((workers < least) | (workers > most))).nonzero()[0]
    if not len(wrong):
        return
    row = wrong.item(0)
    rest = f" or from {least[row]} to {most[row]}" if least[row] <= most[row] else ", as there is no room for it"
    given = format_count(int(workers[row]), "worker")
    raise _InvalidTarget(f"gives {snapshot.jobs.name_of(row)} {given}; it must be 0{rest}.")


def _check_sum(workers: Ints, snapshot: Snapshot) -> None:
    """Check the total; jobs may keep the units that they hold even if a lost node leaves fewer in the cluster."""
    wanted, most = int(snapshot.cost(workers).sum()), max(snapshot.units, snapshot.held_units)
    if wanted > most:
        raise _InvalidTarget(
            f"gives away {wanted} units of {most}; the sum of snapshot.cost must be at most snapshot.units."
        )
