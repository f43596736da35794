"""`SubmitBatcher`: submissions of many clients, stored together.

While one batch is being written to disk the next one gathers, so that a thousand clients cost a few thread switches
and a few flushes. Every submission has its own outcome, and no client gets a response before its jobs are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from starlette.concurrency import run_in_threadpool

from sterna.errors import UserError
from sterna.service.cluster_service import ClusterService
from sterna.service.requests import Submission, Submitted


@runtime_checkable
class BatchSubmitter(Protocol):
    """A cluster that stores several submissions at once."""

    def submit_each(self, submissions: Sequence[Submission]) -> list[Submitted | UserError]:
        """Return for each what `ClusterService.submit` returns or raises; durable when this returns."""
        ...


class SubmitBatcher:
    """Submits to one cluster, in batches if it can. Lives on one event loop."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._pending: list[tuple[Submission, asyncio.Future[Submitted]]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, submission: Submission) -> Submitted:
        """Return the result when the jobs are durable."""
        if not isinstance(self._service, BatchSubmitter):
            return await run_in_threadpool(self._service.submit, submission)
        result: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._pending.append((submission, result))
        if self._task is None:
            self._task = asyncio.create_task(self._submit_batches(self._service))
        return await result

    async def _submit_batches(self, service: BatchSubmitter) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            outcomes: Sequence[Submitted | Exception]
            try:
                outcomes = await run_in_threadpool(service.submit_each, [submission for submission, _ in batch])
            except Exception as error:  # every client of the batch gets it
                outcomes = [error for _ in batch]
            for (_, result), outcome in zip(batch, outcomes, strict=True):
                if result.done():
                    continue  # the client has disconnected
                if isinstance(outcome, Exception):
                    result.set_exception(outcome)
                else:
                    result.set_result(outcome)
        self._task = None
