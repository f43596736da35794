"""What jobs have taught, kept in a ConfigMap beside the Lease so that the next operator begins with it.

Read once, when this replica begins to lead; what it has heard by then comes on top. Written by whoever leads, at most
once a minute and only if something was learned, and once more at the end. What does not fit goes, the categories first
of which nothing was heard for longest. A ConfigMap that cannot be understood is somebody's mistake or another
version's: it is left as it is until somebody deletes or mends it, and lessons are learned anew meanwhile. An operator
decides without lessons, only less well: a server that does not answer holds it up for a few seconds a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.objects import Record
from sterna.backends.kubernetes.api.rbac import FENCE, LESSONS
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, ApiServer, WriteResult
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.errors import Retry, UserError
from sterna.model.learned import CategoryRecord

_log = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024
"""About two thousand categories. A ConfigMap could hold four times as much, but etcd keeps old ones for a while."""
PAUSE_SECONDS = 60.0
"""Between two writes."""
_KEY = "lessons.json"
_TIMEOUT_SECONDS = 5.0
_LONGEST_CATEGORY, _MOST_WORKERS, _MOST_SIZES, _MOST = 256, 1_000_000, 1_000, 1e12


class Kept(NamedTuple):
    """Lessons as they are written down."""

    document: str
    dropped: int
    """Categories for which there was no room."""


class LearnedStore:
    """The ConfigMap of one cluster. For the thread that decides."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        progress: Progress,
        is_leading: Callable[[], bool],
    ) -> None:
        self._server, self._namespace, self._progress = server, namespace, progress
        self._is_leading = is_leading
        self._version = ""
        """Of the ConfigMap as we last read or wrote it; empty: there is none."""
        self._is_known = self._has_recalled = False
        """What is in it is known, so that it may be written over; and counts with what we heard."""
        self._is_unsaved = False
        """Something was learned that is not written down yet."""
        self._due_at = 0.0

    def recall(self) -> bool:
        """Begin with what a predecessor left; whether the ConfigMap was read, or there is none."""
        if self._is_known:
            return True
        found = self._found()
        self._is_known = found is not None
        if found is not None and not self._has_recalled:
            self._has_recalled = True
            self._progress.recall(found)
        return self._is_known

    def look(self, now: float) -> bool:
        """Write down what was learned, if it is time for that; whether to look again after `PAUSE_SECONDS`."""
        if now < self._due_at or not self.keep():
            return False
        self._due_at = now + PAUSE_SECONDS
        return True

    def keep(self) -> bool:
        """Write down at once what is not yet; another time, if that cannot be done now. Whether there was anything."""
        lessons = self._progress.learned_curves
        self._is_unsaved = bool(lessons.pop_unsaved()) or self._is_unsaved
        if self._is_unsaved and self._is_leading() and self.recall():
            self._write(document_of(lessons.by_age))
            return True
        return self._is_unsaved

    def _write(self, kept: Kept) -> None:
        if kept.dropped:
            kib = MOST_BYTES // 1024
            _log.warning("What jobs taught is more than %d KiB; the oldest categories are not kept.", kib)
        try:
            self._is_unsaved = not self._written(kept.document)
        except Retry as trouble:
            self._tell_refused(str(trouble))

    # The ConfigMap.

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{LESSONS}"

    def _found(self) -> Sequence[CategoryRecord] | None:
        """What is in it now; None: that cannot be known, or not be understood, which is told once."""
        try:
            answer = self._server.ask(
                "GET", CONFIG_MAPS.path(self._namespace, LESSONS), timeout_seconds=_TIMEOUT_SECONDS
            )
        except Retry as trouble:
            self._tell_refused(str(trouble))
            return None
        if answer.status == 404:
            self._version = ""
            return ()
        if not answer.is_done:
            self._tell_refused(_said(answer))
            return None
        try:
            record = msgspec.json.decode(answer.body, type=Record)
            lessons = lessons_in(record.data.get(_KEY, "[]"))
        except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
            what = f"What jobs taught, in the ConfigMap {self._where}, is not understood ({error})"
            _log.warning("%s", f"{what}; it is learned anew, and written there once you delete that ConfigMap.")
            return None
        self._version = record.metadata.resource_version
        return lessons

    def _written(self, document: str) -> bool:
        answer = self._changed(document) if self._version else self._created(document)
        if answer.status in (404, 409):  # somebody else was at it
            if self._found() is None:
                self._is_known = False
                return False
            answer = self._changed(document) if self._version else self._created(document)
        if answer.is_done:
            self._version = msgspec.json.decode(answer.body, type=Record).metadata.resource_version
        else:
            self._tell_refused(_said(answer))
        return answer.is_done

    def _created(self, document: str) -> WriteResult:
        meta = {"name": LESSONS, "namespace": self._namespace}
        body = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": meta}
        content = msgspec.json.encode({**body, "data": {_KEY: document}})
        return self._server.ask("POST", CONFIG_MAPS.path(self._namespace), content, timeout_seconds=_TIMEOUT_SECONDS)

    def _changed(self, document: str) -> WriteResult:
        body = {"metadata": {"resourceVersion": self._version}, "data": {_KEY: document}}
        return self._server.ask(
            "PATCH",
            CONFIG_MAPS.path(self._namespace, LESSONS),
            msgspec.json.encode(body),
            content_type="application/merge-patch+json",
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def _tell_refused(self, why: str) -> None:
        if FENCE in why:
            return  # another one leads; this one will end
        what = f"What jobs taught cannot be kept in the ConfigMap {self._where} ({why.removesuffix('.')})"
        _log.warning("%s", f"{what}; let the operator get, create and patch it. It is tried again.")


def document_of(lessons: Sequence[CategoryRecord], most_bytes: int = MOST_BYTES) -> Kept:
    """Lessons, oldest first, as JSON; the newest that have room."""
    parts: list[bytes] = []
    left = most_bytes - 2
    for lesson in reversed(lessons):
        part = msgspec.json.encode(lesson)
        left -= len(part) + 1
        if left < 0:
            break
        parts.append(part)
    document = b"[" + b",".join(reversed(parts)) + b"]"
    return Kept(document.decode(), len(lessons) - len(parts))


def lessons_in(document: str) -> list[CategoryRecord]:
    """`UserError` if somebody has changed them beyond recognition; what cannot be a measurement is left out."""
    try:
        found = msgspec.json.decode(document, type=list[CategoryRecord])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"{_KEY}: {error}") from None
    return [lesson for each in found if (lesson := _sane(each)).category]


def _sane(lesson: CategoryRecord) -> CategoryRecord:
    sane = CategoryRecord(lesson.category if len(lesson.category) <= _LONGEST_CATEGORY else "")
    for pace in lesson.paces[:_MOST_SIZES]:
        if pace.workers <= _MOST_WORKERS:
            sane = sane.with_steps(pace.workers, pace.steps, pace.seconds)
    if 0 < lesson.restarts <= _MOST and 0 <= lesson.restarting_seconds <= _MOST:
        sane = replace(sane, restarts=lesson.restarts, restarting_seconds=lesson.restarting_seconds)
    return sane


def _said(answer: WriteResult) -> str:
    return answer.message or answer.reason or f"status {answer.status}"
