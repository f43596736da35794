"""The way in for new jobs, made for many clients at once: what comes together is read and stored together.

While one batch is on its way to the disk the next one gathers, so that a thousand clients cost a few threads' turns
and a few flushes. Each is answered for itself: what is wrong with one does not concern its neighbours. Nobody is
answered before their jobs are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol, runtime_checkable

import msgspec

from sterna.api.auth import Caller
from sterna.api.problem_json import Problem
from sterna.api.responses import asked
from sterna.service.views import ClusterService, JobView
from sterna.errors import Bug, SternaError, UserError
from sterna.manifests.loading import Loaded, load, load_values
from sterna.model.job import JobSpec

Order = tuple[Sequence[JobSpec], str]
"""Jobs that are created all or none, and the key under which they are; empty: without one."""


@runtime_checkable
class TakesMany(Protocol):
    """A cluster that stores several orders at once."""

    def create_each(self, orders: Sequence[Order]) -> list[list[JobView] | UserError]:
        """For each what `Verbs.create` answers or raises; durable when this returns."""
        ...


class Created(msgspec.Struct):
    """What became of manifests."""

    jobs: list[JobView]
    notices: list[str]
    """About documents of which no job was made."""


@dataclass(frozen=True)
class Submission:
    """What one client sent."""

    body: bytes
    kind: str
    """The content type."""
    cwd: str
    caller: Caller
    key: str = ""


class Intake:
    """Takes submissions for one cluster. Lives on one loop."""

    def __init__(self, verbs: ClusterService) -> None:
        self._verbs = verbs
        self._waiting: list[tuple[Submission, asyncio.Future[Created]]] = []
        self._task: asyncio.Task[None] | None = None

    async def take(self, submission: Submission) -> Created:
        """What became of it, when it is stored."""
        answer: asyncio.Future[Created] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._take_all())
        return await answer

    async def _take_all(self) -> None:
        """One batch after the other, until nobody waits."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes = await asked(taken, self._verbs, [submission for submission, _ in batch])
            except Exception as error:  # ours; whoever waits must hear of it
                outcomes = [error for _ in batch]
            for (_, answer), outcome in zip(batch, outcomes, strict=True):
                if answer.done():
                    continue  # whoever asked has gone
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
        self._task = None


def taken(verbs: ClusterService, submissions: Sequence[Submission]) -> list[Created | Exception]:
    """From bodies to what is on disk, in one go: changing threads costs more than reading a manifest."""
    outcomes: list[Created | Exception | None] = []
    orders: dict[int, Order] = {}
    notices: dict[int, list[str]] = {}
    for place, each in enumerate(submissions):
        try:
            specs, left_out = _read(each)
        except SternaError as error:
            outcomes.append(error)
            continue
        outcomes.append(Created([], left_out) if not specs else None)
        if specs:
            orders[place] = (
                specs,
                f"{each.caller.name}/{each.key}" if each.key else "",
            )  # two users, one idea of a key
            notices[place] = left_out
    for place, stored in zip(orders, _stored(verbs, list(orders.values())), strict=True):
        outcomes[place] = Created(stored, notices[place]) if isinstance(stored, list) else stored
    return [Bug("a submission without an outcome") if each is None else each for each in outcomes]


def _read(submission: Submission) -> tuple[list[JobSpec], list[str]]:
    loaded = _loaded(submission.body, submission.kind)
    specs = [_placed(replace(spec, user=submission.caller.name), submission.cwd) for spec in loaded.jobs]
    return specs, list(loaded.notices)


def _stored(verbs: ClusterService, orders: Sequence[Order]) -> list[list[JobView] | Exception]:
    if isinstance(verbs, TakesMany):
        answers = verbs.create_each(orders)
        return [
            each if isinstance(each, list) else _told_apart(verbs, order[0], each)
            for order, each in zip(orders, answers, strict=True)
        ]
    found: list[list[JobView] | Exception] = []
    for specs, key in orders:
        try:
            found.append(created(verbs, specs, key))
        except SternaError as error:
            found.append(error)
    return found


def created(cluster: ClusterService, specs: Sequence[JobSpec], key: str = "") -> list[JobView]:
    """Jobs that are on disk now; a name that is taken is told from other mistakes."""
    try:
        return cluster.create(specs, key)
    except UserError as error:
        raise _told_apart(cluster, specs, error) from None


def _told_apart(cluster: ClusterService, specs: Sequence[JobSpec], error: UserError) -> Problem:
    is_taken = any(_is_there(cluster, spec.name) for spec in specs)
    return Problem(409 if is_taken else 422, str(error))


def _is_there(cluster: ClusterService, name: str) -> bool:
    try:
        cluster.job(name)
    except UserError:
        return False
    return True


def _loaded(body: bytes, kind: str) -> Loaded:
    try:
        if "json" not in kind:
            return load(body.decode(), "the request")
        value = msgspec.json.decode(body)
        return load_values(value if isinstance(value, list) else [value], "the request")
    except UnicodeDecodeError:
        raise Problem(400, "The body is not text in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise Problem(400, f"The body is not JSON ({error}).") from None


def _placed(spec: JobSpec, cwd: str) -> JobSpec:
    """A job whose folders are seen from where its submitter was."""
    if not cwd:
        return spec
    if not cwd.startswith("/"):
        raise Problem(422, f"cwd '{cwd}' is not a full path; begin it with '/'.")
    replicas = [replace(each, working_dir=str(PurePosixPath(cwd, each.working_dir))) for each in spec.replicas]
    return replace(spec, replicas=tuple(replicas))
