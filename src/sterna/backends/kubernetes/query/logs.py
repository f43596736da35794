"""What a pod printed, from where one stopped reading.

Kubernetes knows no positions in a log, only times: each line is asked for with its time, and what follows the last one
is new. A pod that took another one's place goes on where that one ended.
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

_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")
_SHORT_LINE = 16
"""Bytes; lines are longer than this as a rule, so that enough of them are asked for."""
_TRAINERS = ("tensorflow", "pytorch")


class _Position(NamedTuple):
    """How far the output of one replica was read."""

    uid: str
    begin: int
    """Where this pod's output began among all that was read."""
    end: int
    stamp: bytes = b""
    """Time of the last line; empty: the server gives none."""
    times: int = 0
    """Lines of that very time."""
    rest: bytes = b""
    """Fetched and not read yet."""


class Logs:
    """Reads logs, and remembers how far."""

    def __init__(self, asking: ApiReader) -> None:
        self._asking = asking
        self._positions: dict[tuple[str, str], _Position] = {}

    def read(self, pod: Pod, replica: tuple[str, str], offset: int, limit: int) -> tuple[bytes, int]:
        """Output of the pod that is this replica now, from an offset on, and where it ends. Only offsets that were
        answered before are cheap. If negative, at most so many bytes of the end: less where lines are very short."""
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
        return part, known.end + len(part)

    def _fetch(self, pod: Pod, known: _Position | None, lines: int = 0) -> tuple[bytes, _Position]:
        """What is new since a position, and that position without it: whoever reads it moves on."""
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
        answer = self._asking.server.ask("GET", PODS.path(meta.namespace, meta.name, "log"), query=query)
        if answer.is_done:
            return answer.body
        if answer.status == 404 or _is_early(answer):
            return b""
        if answer.status >= 500:
            what = f"The log of pod '{meta.name}' does not come from its node '{pod.spec.node_name}'"
            raise Retry(f"{what} ({' '.join(answer.message.split())[-200:]}); see that the node is up, or try again.")
        raise self._asking.refusal(answer, PODS, meta.namespace, meta.name)


def _is_early(answer: WriteResult) -> bool:
    """Its container has not run yet, or has gone."""
    return answer.status == 400 and any(
        word in answer.message for word in ("waiting to start", "not found", "does not have")
    )


def _newer(body: bytes, last: _Position) -> tuple[bytes, _Position]:
    """Lines without their times, those left out that were read before."""
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
    """Compares as the times do: whole seconds, then the fraction, however many figures it has."""
    match = re.match(rb"([^.Z+]*)(?:\.(\d+))?", stamp)
    assert match is not None
    return match[1], (match[2] or b"").ljust(9, b"0")


def _whole_second(stamp: bytes) -> str:
    return re.sub(rb"\.\d+", b"", stamp).decode()


def _container(pod: Pod) -> str:
    """The one that trains."""
    names = [each.name for each in pod.spec.containers]
    return next((name for name in names if name in _TRAINERS), names[0] if names else "")
