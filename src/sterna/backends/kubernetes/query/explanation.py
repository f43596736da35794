"""The explanation of a job of a cluster, from its object, status and events. Pure.

A cluster keeps no journal of rounds, so its events have fewer details than those of a journal; the API server keeps
events for an hour by default.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.service.views import EventView, ExplainedEvent, Explanation, JobView, PolicyView

_EVENT_KINDS = {"waiting": "waits", "running": "runs", "stopping": "stopped"}


def list_events(job: JobView, events: Sequence[EventView], now: float) -> list[ExplainedEvent]:
    """Return sentences in order of time, counted from the submission; the last one states the current state."""
    asked = f"{job.request} worker{'s' if job.request != 1 else ''}"
    sizes = "" if job.minimum == job.maximum else f" ({job.minimum} to {job.maximum} possible)"
    rank = f", priority {job.priority}" if job.priority else ""
    listed = [_event(job, job.submitted_at, "submitted", f"submitted: asks for {asked}{sizes}{rank}.")]
    listed += [_event(job, event.at, event.kind, event.sentence) for event in sorted(events, key=lambda each: each.at)]
    sentence = _current_state(job)
    if sentence != listed[-1].sentence:
        at = now if job.ended_at is None else job.ended_at
        listed.append(_event(job, at, _EVENT_KINDS.get(job.state, job.state), sentence))
    return listed


def explain_job(job: JobView, events: list[ExplainedEvent], rules: PolicyView, now: float) -> Explanation:
    """Return the document of `sterna explain`, without a round: a cluster keeps none."""
    state = "ended" if job.state in ("completed", "failed") else _EVENT_KINDS.get(job.state, job.state)
    return Explanation(
        job.name,
        rules.policy,
        rules.placement,
        None,
        max(0.0, now - job.submitted_at),
        state,
        events,
        [],
        started_at=job.submitted_at,
    )


def _current_state(job: JobView) -> str:
    if job.state == "running":
        where = f" on {', '.join(job.nodes)}" if job.nodes else ""
        return f"runs with {job.workers} worker{'s' if job.workers != 1 else ''}{where}."
    return job.reason or f"is {job.state}."


def _event(job: JobView, at: float, kind: str, sentence: str) -> ExplainedEvent:
    return ExplainedEvent(max(0.0, at - job.submitted_at), kind, sentence)
