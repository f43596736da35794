"""One resource, listed in pages and then watched, as a state machine: answers of the server in, news out. No I/O.

For `client.py` and for the server in memory that tests use. What it holds to:

- What is told never goes back in time. Resource versions decide: an event older than what was told, be it a page, an
  event seen twice, or the late echo of our own write, is dropped.
- What we wrote is told at once (`note_written`), not when the watch gets to it, and survives a relist: an object newer
  than the list is not missing from it. An answer that the watch has overtaken is dropped, so nothing that was deleted
  comes back.
- Any end of a watch means watching again from where it ended; 410, as an answer or as an event, and any other error
  event mean listing again and telling the difference.
- An object never changes its uid: if the name is taken by another one, the old one is told to be gone first.

Objects are told and forgotten: of each only version and uid are kept, so `GONE` after a relist, or of a predecessor,
carries no more than name, uid and the last version. It deliberately does not judge which objects matter.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from sterna.backends.kubernetes.api.envelopes import LINES, RAW_PAGES, ListMeta, refusal_of
from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.api.resources import Change, Delta, Followed
from sterna.backends.kubernetes.api.selectors import Selector
from sterna.kinds.objects import Meta

PAGE_SIZE = 1000
WATCH_SECONDS = 290
"""After so long the server ends a watch; a new one costs next to nothing."""

_ABSENT = frozenset({401, 403, 404, 405})
_LISTED_AGAIN = frozenset({400, 404, 410, 504})
"""400, 504: the server does not know the version to watch from, for it is of another history."""
_PLAIN = msgspec.json.Decoder(Plain)


class Request(NamedTuple):
    """What to ask the server for next."""

    path: str
    query: str
    is_watch: bool


class _Known(NamedTuple):
    version: int
    uid: str


class Reflector:
    """What has been told about one resource, and what to ask next."""

    def __init__(self, followed: Followed, page_size: int = PAGE_SIZE) -> None:
        self.followed = followed
        self._page_size = page_size
        self._objects = msgspec.json.Decoder(followed.type)
        self._events = msgspec.json.Decoder(_event_type(followed.type))
        self._pages = msgspec.json.Decoder(_page_type(followed.type))
        self._raw_fields = [field.name for field in msgspec.structs.fields(followed.type) if field.type is msgspec.Raw]
        self._labels = Selector(followed.labels)
        self._known: dict[str, _Known] = {}
        self._position = 0
        """Everything up to this version has been told."""
        self._is_listing = True
        self._token = ""
        self._listed_version = 0
        self._listed: set[str] | None = None
        self._rest = b""
        self._absent_why = ""

    # What to ask.

    def request(self, watch_seconds: int = WATCH_SECONDS) -> Request:
        """The next page, or the watch from where the last one ended."""
        followed = self.followed
        terms = [
            f"{name}={quote(selector, safe='')}"
            for name, selector in (("labelSelector", followed.labels), ("fieldSelector", followed.fields))
            if selector
        ]
        if self._is_listing:
            terms.append(f"limit={self._page_size}")
            if self._token:
                terms.append(f"continue={quote(self._token, safe='')}")
        else:
            terms += [
                "watch=1",
                f"resourceVersion={self._position}",
                "allowWatchBookmarks=true",
                f"timeoutSeconds={watch_seconds}",
            ]
        return Request(followed.resource.path(followed.namespace), "&".join(terms), not self._is_listing)

    def list_again(self) -> None:
        """From the first page; what is known stays known, and the difference will be told."""
        self._is_listing, self._token, self._listed, self._rest = True, "", None, b""

    # What came.

    def page(self, body: bytes) -> list[Delta]:
        """A page of the list."""
        meta, objects = self._decoded_page(body)
        if not self._token:
            self._begin_list(_number(meta.resource_version))
        deltas: list[Delta] = []
        for each in objects:
            if self._listed is not None:
                self._listed.add(each.metadata.key)
            self._see(each, deltas)
        self._token = meta.token
        if not self._token:
            self._finish_list(deltas)
        return deltas

    def opened(self) -> list[Delta]:
        """The server agreed to the watch."""
        self._rest = b""
        return self._back()

    def events(self, chunk: bytes) -> list[Delta]:
        """Bytes of a watch, cut anywhere. `wants_list` afterwards: nothing more of this watch is of use."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        deltas: list[Delta] = []
        for line in lines:
            if line and not self._is_listing:
                self._take(line, deltas)
        return deltas

    @property
    def wants_list(self) -> bool:
        return self._is_listing

    def refused(self, status: int, body: bytes) -> list[Delta]:
        """The server did not give what was asked for."""
        if status in _LISTED_AGAIN:
            self.list_again()
        if status not in _ABSENT:
            return []
        why = self._sentence(status, refusal_of(body).message)
        if why == self._absent_why:
            return []
        self._absent_why = why
        return [Delta(Change.ABSENT, self.followed.resource, why=why)]

    def note_written(self, body: bytes) -> list[Delta]:
        """The answer to a write of ours: the object as it is since then; anything else is passed over."""
        if self.followed.fields:
            return []
        try:
            written = self._decoded(body)
        except msgspec.DecodeError:
            return []  # a Status
        meta: Meta = written.metadata
        is_ours = meta.name and self.followed.namespace in ("", meta.namespace) and self._labels.takes(meta.labels)
        overtaken = self._listed_version if self._is_listing and self._token else self._position
        if not is_ours or meta.version <= overtaken:
            return []
        deltas: list[Delta] = []
        self._see(written, deltas)
        return deltas

    # How it is judged.

    def _take(self, line: bytes, deltas: list[Delta]) -> None:
        try:
            event = self._events.decode(line)
        except msgspec.DecodeError:
            self._take_odd(line)
            return
        if event.type == "ERROR":
            self.list_again()
        elif event.type == "BOOKMARK":
            self._advance(event.object.metadata.version)
        else:
            self._take_object(event.type == "DELETED", self._detached(event.object), deltas)

    def _take_odd(self, line: bytes) -> None:
        """An event of what is no such object: no such object exists as far as we are concerned; the others do."""
        try:
            event = LINES.decode(line)
            if event.type != "ERROR":
                self._advance(_PLAIN.decode(event.object).metadata.version)
                return
        except msgspec.DecodeError:
            pass
        self.list_again()

    def _take_object(self, is_deleted: bool, seen: Any, deltas: list[Delta]) -> None:
        meta: Meta = seen.metadata
        if not is_deleted:
            self._see(seen, deltas)
        elif (known := self._known.get(meta.key)) and known.version <= meta.version and known.uid == meta.uid:
            del self._known[meta.key]
            deltas.append(Delta(Change.GONE, self.followed.resource, seen))
        self._advance(meta.version)

    def _see(self, seen: Any, deltas: list[Delta]) -> None:
        meta: Meta = seen.metadata
        key, version = meta.key, meta.version
        known = self._known.get(key)
        if known is not None:
            if version <= known.version:
                return
            if known.uid != meta.uid:
                deltas.append(self._gone(key, known))
        self._known[key] = _Known(version, meta.uid)
        deltas.append(Delta(Change.SEEN, self.followed.resource, seen))

    def _begin_list(self, version: int) -> None:
        """A list older than what was told comes of a store that was put back from a backup: versions start anew."""
        if version < self._position:
            self._known = {key: _Known(0, known.uid) for key, known in self._known.items()}
            self._position = 0
        self._listed_version = version
        self._listed = set() if self._known else None

    def _finish_list(self, deltas: list[Delta]) -> None:
        """What is missing from the list is gone, unless it is newer than the list."""
        if self._listed is not None:
            missing = [
                (key, known)
                for key, known in self._known.items()
                if known.version <= self._listed_version and key not in self._listed
            ]
            for key, known in missing:
                del self._known[key]
                deltas.append(self._gone(key, known))
        self._is_listing, self._listed = False, None
        self._position = self._listed_version
        self._absent_why = ""
        deltas.append(Delta(Change.SYNCED, self.followed.resource))

    def _back(self) -> list[Delta]:
        """Seen again after it was not."""
        if not self._absent_why:
            return []
        self._absent_why = ""
        return [Delta(Change.SYNCED, self.followed.resource)]

    def _gone(self, key: str, known: _Known) -> Delta:
        namespace, _, name = key.partition("/")
        meta = Meta(name=name, namespace=namespace, uid=known.uid, resource_version=str(known.version))
        return Delta(Change.GONE, self.followed.resource, self.followed.type(metadata=meta))

    def _advance(self, version: int) -> None:
        self._position = max(self._position, version)

    # How it is read.

    def _decoded(self, body: bytes | msgspec.Raw) -> Any:
        return self._detached(self._objects.decode(body))

    def _decoded_page(self, body: bytes) -> tuple[ListMeta, list[Any]]:
        """One object that cannot be read does not hide the others."""
        try:
            page = self._pages.decode(body)
            return page.metadata, [self._detached(each) for each in page.items]
        except msgspec.ValidationError:
            raw = RAW_PAGES.decode(body)
        objects = []
        for each in raw.items or ():
            try:
                objects.append(self._decoded(each))
            except msgspec.ValidationError:
                continue
        return raw.metadata, objects

    def _detached(self, decoded: Any) -> Any:
        """Parts that are left undecoded are views of the bytes they came in: cut loose, or one job holds a page."""
        for name in self._raw_fields:
            setattr(decoded, name, getattr(decoded, name).copy())
        return decoded

    def _sentence(self, status: int, message: str) -> str:
        resource = self.followed.resource
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        if status == 401:
            return "The API server does not accept our credentials; log in again, or mend the user in the kubeconfig."
        if status == 403:
            return f"Sterna may not see {name} ({message}); grant it list and watch, as its ClusterRole does."
        if self.followed.is_optional:
            return f"The API server does not know {name}; install its definition if {resource.kind}s are to be run."
        return f"The API server does not know {name}; install Sterna's definitions, as deploy/sterna.yaml does."


def _event_type(item: type[Any]) -> Any:
    return msgspec.defstruct("Event", [("type", str), ("object", item)])


def _page_type(item: type[Any]) -> Any:
    return msgspec.defstruct("Page", [("metadata", ListMeta), ("items", GenericAlias(list, (item,)))])


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
