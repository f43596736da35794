"""The story of a job of a cluster, from what was written down about it: its object, its status and its events. Pure.

A cluster keeps no journal of rounds, so the story has the same form as one from a journal and fewer details; events are
kept for as long as the server keeps them, an hour as a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterna.backends.kubernetes.query.views import JobView
from sterna.service.views import EventView, PolicyView

Document = dict[str, Any]

_TOLD = {"waiting": "waits", "running": "runs", "stopping": "stopped"}


def story_of(job: JobView, events: Sequence[EventView], now: float) -> list[Document]:
    """Sentences in the order of time, counted from its submission; the last says how things stand."""
    asked = f"{job.request} worker{'s' if job.request != 1 else ''}"
    sizes = "" if job.minimum == job.maximum else f" ({job.minimum} to {job.maximum} possible)"
    rank = f", priority {job.priority}" if job.priority else ""
    told = [_event(job, job.submitted_at, "submitted", f"submitted: asks for {asked}{sizes}{rank}.")]
    told += [_event(job, event.at, event.kind, event.sentence) for event in sorted(events, key=lambda each: each.at)]
    sentence = _standing(job)
    if sentence != told[-1]["sentence"]:
        at = now if job.ended_at is None else job.ended_at
        told.append(_event(job, at, _TOLD.get(job.state, job.state), sentence))
    return told


def explanation(job: JobView, story: Sequence[Document], rules: PolicyView, now: float) -> Document:
    """The document of `sterna explain`; rounds are not kept, so none is named."""
    state = "ended" if job.state in ("completed", "failed") else _TOLD.get(job.state, job.state)
    return {
        "job": job.name,
        "policy": rules.policy,
        "placement_rule": rules.placement,
        "round": None,
        "at_s": max(0.0, now - job.submitted_at),
        "state": state,
        "story": list(story),
        "changes": [],
    }


def _standing(job: JobView) -> str:
    if job.state == "running":
        where = f" on {', '.join(job.nodes)}" if job.nodes else ""
        return f"runs with {job.workers} worker{'s' if job.workers != 1 else ''}{where}."
    return job.reason or f"is {job.state}."


def _event(job: JobView, at: float, kind: str, sentence: str) -> Document:
    return {"at_s": max(0.0, at - job.submitted_at), "event": kind, "sentence": sentence}
