"""`LearnedStore`: learned curves of job categories in a ConfigMap, so that the next leader starts with them.

Read once when this replica starts leading, and merged with what it learned meanwhile. Written by the leader, at most
once a minute and only after a change, and once at shutdown. If the curves do not fit, the least recently updated
categories are dropped. A ConfigMap that cannot be parsed is left alone until an administrator deletes or repairs it.
The operator works without curves; an API server that does not answer delays it by a few seconds a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.objects import ConfigMap
from sterna.backends.kubernetes.api.rbac import FENCE, LEARNED_CURVES
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, ApiServer, WriteResult
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.errors import Retry, UserError
from sterna.model.learned import CategoryRecord

_log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024
"""About two thousand categories. A ConfigMap may hold four times as much, but etcd keeps old revisions for a while."""
PAUSE_SECONDS = 60.0
"""Minimum interval between two writes."""
_KEY = "curves.json"
_TIMEOUT_SECONDS = 5.0
_MAX_CATEGORY, _MAX_WORKERS, _MAX_SIZES, _MAX_VALUE = 256, 1_000_000, 1_000, 1e12


class LearnedDocument(NamedTuple):
    """Learned curves as JSON."""

    document: str
    dropped: int
    """Number of categories that did not fit."""


class LearnedStore:
    """The ConfigMap of one cluster. Not thread-safe."""

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
        """Resource version last read or written; empty if there is no ConfigMap."""
        self._is_known = self._is_merged = False
        """The content is known, so that it may be overwritten; and was merged into `progress`."""
        self._is_unsaved = False
        """True if there are changes that were not written."""
        self._due_at = 0.0

    def load(self) -> bool:
        """Load the curves of a previous leader; return True if the ConfigMap was read or does not exist."""
        if self._is_known:
            return True
        found = self._read()
        self._is_known = found is not None
        if found is not None and not self._is_merged:
            self._is_merged = True
            self._progress.recall(found)
        return self._is_known

    def save_if_due(self, now: float) -> bool:
        """Write changes at most every `PAUSE_SECONDS`; return True if there were any."""
        if now < self._due_at or not self.save():
            return False
        self._due_at = now + PAUSE_SECONDS
        return True

    def save(self) -> bool:
        """Write changes now, or keep them for a later attempt; return True if there were any."""
        curves = self._progress.learned_curves
        self._is_unsaved = bool(curves.pop_unsaved()) or self._is_unsaved
        if self._is_unsaved and self._is_leading() and self.load():
            self._write(encode_curves(curves.by_age))
            return True
        return self._is_unsaved

    def _write(self, encoded: LearnedDocument) -> None:
        if encoded.dropped:
            kib = MAX_BYTES // 1024
            _log.warning("The learned curves exceed %d KiB; the oldest categories are not stored.", kib)
        try:
            self._is_unsaved = not self._store(encoded.document)
        except Retry as error:
            self._log_rejection(str(error))

    # The ConfigMap.

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{LEARNED_CURVES}"

    def _read(self) -> Sequence[CategoryRecord] | None:
        """Return the stored curves; None if they cannot be read or parsed, which is logged."""
        try:
            result = self._server.ask(
                "GET", CONFIG_MAPS.path(self._namespace, LEARNED_CURVES), timeout_seconds=_TIMEOUT_SECONDS
            )
        except Retry as error:
            self._log_rejection(str(error))
            return None
        if result.status == 404:
            self._version = ""
            return ()
        if not result.is_done:
            self._log_rejection(_server_message(result))
            return None
        try:
            record = msgspec.json.decode(result.body, type=ConfigMap)
            curves = decode_curves(record.data.get(_KEY, "[]"))
        except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
            what = f"The learned curves in the ConfigMap {self._where} cannot be decoded ({error})"
            _log.warning(
                "%s", f"{what}; curves are learned from scratch, and stored there once you delete that ConfigMap."
            )
            return None
        self._version = record.metadata.resource_version
        return curves

    def _store(self, document: str) -> bool:
        result = self._patch(document) if self._version else self._create(document)
        if result.status in (404, 409):  # changed by another client
            if self._read() is None:
                self._is_known = False
                return False
            result = self._patch(document) if self._version else self._create(document)
        if result.is_done:
            self._version = msgspec.json.decode(result.body, type=ConfigMap).metadata.resource_version
        else:
            self._log_rejection(_server_message(result))
        return result.is_done

    def _create(self, document: str) -> WriteResult:
        meta = {"name": LEARNED_CURVES, "namespace": self._namespace}
        body = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": meta}
        content = msgspec.json.encode({**body, "data": {_KEY: document}})
        return self._server.ask("POST", CONFIG_MAPS.path(self._namespace), content, timeout_seconds=_TIMEOUT_SECONDS)

    def _patch(self, document: str) -> WriteResult:
        body = {"metadata": {"resourceVersion": self._version}, "data": {_KEY: document}}
        return self._server.ask(
            "PATCH",
            CONFIG_MAPS.path(self._namespace, LEARNED_CURVES),
            msgspec.json.encode(body),
            content_type="application/merge-patch+json",
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def _log_rejection(self, why: str) -> None:
        if FENCE in why:
            return  # another replica leads; this one exits
        what = f"The learned curves cannot be stored in the ConfigMap {self._where} ({why.removesuffix('.')})"
        _log.warning("%s", f"{what}; let the operator get, create and patch it. It is tried again.")


def encode_curves(curves: Sequence[CategoryRecord], max_bytes: int = MAX_BYTES) -> LearnedDocument:
    """Encode curves, given oldest first; the newest that fit are kept."""
    parts: list[bytes] = []
    left = max_bytes - 2
    for curve in reversed(curves):
        part = msgspec.json.encode(curve)
        left -= len(part) + 1
        if left < 0:
            break
        parts.append(part)
    document = b"[" + b",".join(reversed(parts)) + b"]"
    return LearnedDocument(document.decode(), len(curves) - len(parts))


def decode_curves(document: str) -> list[CategoryRecord]:
    """Decode curves; raise `UserError` if they are malformed, and drop values that cannot be measurements."""
    try:
        found = msgspec.json.decode(document, type=list[CategoryRecord])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"{_KEY}: {error}") from None
    return [curve for each in found if (curve := _sanitize(each)).category]


def _sanitize(curve: CategoryRecord) -> CategoryRecord:
    sane = CategoryRecord(curve.category if len(curve.category) <= _MAX_CATEGORY else "")
    for pace in curve.paces[:_MAX_SIZES]:
        if pace.workers <= _MAX_WORKERS:
            sane = sane.with_steps(pace.workers, pace.steps, pace.seconds)
    if 0 < curve.restarts <= _MAX_VALUE and 0 <= curve.restarting_seconds <= _MAX_VALUE:
        sane = replace(sane, restarts=curve.restarts, restarting_seconds=curve.restarting_seconds)
    return sane


def _server_message(result: WriteResult) -> str:
    return result.message or result.reason or f"status {result.status}"
