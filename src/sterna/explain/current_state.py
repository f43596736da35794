"""Continue the explanation of a job from a journal to the present, with the events and the state of its cluster.

A journal records decisions. Exits, checkpoints, lost work and back-off are events of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sterna.control.failures import clock_time
from sterna.model.formatting import format_count
from sterna.service.views import EventView, ExplainedEvent, Explanation, JobView

_KINDS = frozenset({"ended", "restarting", "stopping", "saved", "lost", "error", "completed", "failed", "deleting"})
"""Kinds of cluster events that no round of a journal records."""
_STATES = {"waiting": "waits", "running": "runs", "stopping": "stopped"}
_LAST = ("waits", "runs", "stopped")


def continue_to_now(explanation: Explanation, job: JobView, events: Sequence[EventView], now: float) -> Explanation:
    """Return the explanation with the cluster's events of the job, and its present state as the last sentence."""
    start = explanation.started_at
    if start is None:
        return explanation
    story = [event for event in explanation.events if not _is_replaced(event)]
    last = story.pop() if story and story[-1].event in _LAST and explanation.state != "ended" else None
    story += [ExplainedEvent(event.at - start, event.kind, event.sentence) for event in events if event.kind in _KINDS]
    story.sort(key=lambda event: event.at_s)
    state = _STATES.get(job.state, "ended")
    if state != "ended":
        since = _since(story, last, state)
        sentence = _present_state(job, clock_time(start + since, now))
        story.append(ExplainedEvent(now - start, state, sentence))
    changes = explanation.changes if state == explanation.state else []
    return msgspec.structs.replace(explanation, events=story, at_s=now - start, state=state, changes=changes)


def _is_replaced(event: ExplainedEvent) -> bool:
    """True for sentences of a journal about which the cluster knows more: how workers were lost, how the job ended."""
    return event.event == "ended" or (event.event == "lost" and event.sentence.endswith("no round decided it."))


def _since(story: Sequence[ExplainedEvent], last: ExplainedEvent | None, state: str) -> float:
    """Return the second at which the present state began."""
    if state == "waits" and last is not None and last.event == "waits":
        return last.at_s
    begins = {"waits": ("submitted", "stopped", "restarting"), "runs": ("started", "found")}.get(state, ("stopping",))
    return next((event.at_s for event in reversed(story) if event.event in begins), story[-1].at_s if story else 0.0)


def _present_state(job: JobView, since: str) -> str:
    if job.state == "waiting":
        return f"waits since {since}: {job.reason.removeprefix('waits: ')}"
    if job.state == "running":
        where = f" on {', '.join(job.nodes)}" if job.nodes else ""
        return f"runs since {since} with {format_count(job.workers, 'worker')}{where}."
    return f"is being stopped since {since}."
