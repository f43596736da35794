"""Logs of pods by byte offset, which the API server does not offer.

The server knows times only: lines are read with their timestamps, and those after the last one are new. The log of a
pod that replaced another one continues where that one ended.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from sterna.backends.kubernetes.api.resources import WriteResult
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.errors import Retry
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from sterna.service.views import LogPart

_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")
_SHORT_LINE = 16
"""Bytes; most lines are longer, so that a tail of N bytes reads enough lines."""
_TRAINERS = ("tensorflow", "pytorch")


class _Position(NamedTuple):
    """Read position in the output of one replica."""

    uid: str
    begin: int
    """Offset at which this pod's output begins in that of the replica."""
    end: int
    stamp: bytes = b""
    """Timestamp of the last line; empty: the server sends none."""
    times: int = 0
    """Number of lines with that timestamp."""
    rest: bytes = b""
    """Fetched but not returned yet."""


class Logs:
    """Reads logs and remembers the position in each."""

    def __init__(self, reader: ApiReader) -> None:
        self._reader = reader
        self._positions: dict[tuple[str, str], _Position] = {}

    def read(self, pod: Pod, replica: tuple[str, str], offset: int, limit: int) -> LogPart:
        """Return output of the pod that is this replica now, from `offset`. Continuing at the end of the last part is
        cheap; any other offset reads the whole log. A negative one returns at most that many bytes of the end, fewer if
        lines are very short."""
        known = self._positions.get(replica)
        if offset < 0:
            text, known = self._fetch(pod, None, -offset // _SHORT_LINE + 1)
            text = text[offset:]
            known = known._replace(begin=0, end=0)
        elif known is None or known.end != offset:
            text, known = self._fetch(pod, None)
            text = text[offset:]
            known = known._replace(begin=0, end=min(offset, len(text) + offset))
        elif known.rest:
            text = known.rest
        else:
            text, known = self._fetch(pod, known)
        part, rest = text[:limit], text[limit:]
        self._positions[replica] = known._replace(end=known.end + len(part), rest=rest)
        return LogPart(part, known.end + len(part))

    def _fetch(self, pod: Pod, known: _Position | None, lines: int = 0) -> tuple[bytes, _Position]:
        """Return the output after a position, and the position with its timestamp updated but `end` unchanged."""
        terms = [f"container={quote(_container(pod))}", "timestamps=true"]
        if lines:
            terms.append(f"tailLines={lines}")
        if known is None:
            known = _Position(pod.metadata.uid, 0, 0)
        elif known.uid != pod.metadata.uid:
            known = _Position(pod.metadata.uid, known.end, known.end)
        elif known.stamp:
            terms.append(f"sinceTime={quote(_whole_second(known.stamp))}")
        body = self._body(pod, "&".join(terms))
        if not _STAMPED.match(body):
            return body[known.end - known.begin :], known
        return _newer(body, known)

    def _body(self, pod: Pod, query: str) -> bytes:
        meta = pod.metadata
        answer = self._reader.server.ask("GET", PODS.path(meta.namespace, meta.name, "log"), query=query)
        if answer.is_done:
            return answer.body
        if answer.status == 404 or _has_no_log(answer):
            return b""
        if answer.status >= 500:
            what = f"The log of pod '{meta.name}' does not come from its node '{pod.spec.node_name}'"
            raise Retry(f"{what} ({' '.join(answer.message.split())[-200:]}); see that the node is up, or try again.")
        raise self._reader.refusal(answer, PODS, meta.namespace, meta.name)


def _has_no_log(answer: WriteResult) -> bool:
    """True if the container has not started yet or is gone."""
    return answer.status == 400 and any(
        word in answer.message for word in ("waiting to start", "not found", "does not have")
    )


def _newer(body: bytes, last: _Position) -> tuple[bytes, _Position]:
    """Strip the timestamps, and drop the lines that were read before."""
    kept: list[bytes] = []
    stamp, times, before = last.stamp, last.times, 0
    for line in body.splitlines(keepends=True):
        match = _STAMPED.match(line)
        if match is None:
            kept.append(line)
            continue
        at, text = match[1], line[match.end() :]
        if last.stamp and _order(at) <= _order(last.stamp):
            before += at == last.stamp
            if at != last.stamp or before <= last.times:
                continue
        stamp, times = at, times + 1 if at == stamp else 1
        kept.append(text)
    return b"".join(kept), last._replace(stamp=stamp, times=times)


def _order(stamp: bytes) -> tuple[bytes, bytes]:
    """Sort key of a timestamp: whole seconds, then the fraction padded to nanoseconds."""
    match = re.match(rb"([^.Z+]*)(?:\.(\d+))?", stamp)
    assert match is not None
    return match[1], (match[2] or b"").ljust(9, b"0")


def _whole_second(stamp: bytes) -> str:
    return re.sub(rb"\.\d+", b"", stamp).decode()


def _container(pod: Pod) -> str:
    """Name of the training container."""
    names = [each.name for each in pod.spec.containers]
    return next((name for name in names if name in _TRAINERS), names[0] if names else "")
