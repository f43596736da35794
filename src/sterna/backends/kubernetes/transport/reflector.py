"""Reflector: a state machine that turns list and watch replies of one resource into deltas. No I/O.

Used by `client.py` and by the in-memory API server of the tests. Guarantees:

- Deltas of an object never go back in time. Resource versions decide: a page, a repeated event or the watch's late echo
  of our own write is dropped if it is older than what was delivered.
- The object in the reply to our own write is delivered at once (`note_written`) and survives a relist: an object newer
  than the list is not missing from it. A reply that the watch has overtaken is dropped, so that a deleted object does
  not reappear.
- A watch that ends is reopened at its last version. 410, as a status or as an event, and any other error event lead to
  a relist, whose difference to the known objects is delivered.
- If another object takes over a name, `GONE` of the old uid precedes `SEEN` of the new one.

Only version and uid of each object are kept, so `GONE` after a relist, or of a replaced object, carries no more than
name, uid and last version. The reflector does not judge which objects matter.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from sterna.backends.kubernetes.api.envelopes import LINES, RAW_PAGES, ListMeta, parse_rejection
from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.api.resources import Delta, DeltaKind, Followed
from sterna.backends.kubernetes.api.selectors import LabelSelector
from sterna.kinds.objects import Meta

PAGE_SIZE = 1000
WATCH_SECONDS = 290
"""Longest watch that is requested from the server; reopening one is cheap."""

_ABSENT_STATUSES = frozenset({401, 403, 404, 405})
_RELIST_STATUSES = frozenset({400, 404, 410, 504})
"""Includes 400 and 504: the server does not know the version to watch from, because etcd was restored."""
_PLAIN = msgspec.json.Decoder(Plain)


class ReadRequest(NamedTuple):
    """The next list page or watch to request."""

    path: str
    query: str
    is_watch: bool


class _Known(NamedTuple):
    version: int
    uid: str


class Reflector:
    """List and watch state of one resource."""

    def __init__(self, followed: Followed, page_size: int = PAGE_SIZE) -> None:
        self.followed = followed
        self._page_size = page_size
        self._objects = msgspec.json.Decoder(followed.type)
        self._events = msgspec.json.Decoder(_event_type(followed.type))
        self._pages = msgspec.json.Decoder(_page_type(followed.type))
        self._raw_fields = [field.name for field in msgspec.structs.fields(followed.type) if field.type is msgspec.Raw]
        self._labels = LabelSelector(followed.labels)
        self._known: dict[str, _Known] = {}
        self._position = 0
        """Resource version up to which all events were delivered."""
        self._is_listing = True
        self._token = ""
        self._listed_version = 0
        self._list: set[str] | None = None
        self._rest = b""
        self._absent_why = ""

    # Requests.

    def request(self, watch_seconds: int = WATCH_SECONDS) -> ReadRequest:
        """Return the next page, or the watch from the last version."""
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
        return ReadRequest(followed.resource.path(followed.namespace), "&".join(terms), not self._is_listing)

    def list_again(self) -> None:
        """Restart from the first page; known objects stay known, and the difference is delivered."""
        self._is_listing, self._token, self._list, self._rest = True, "", None, b""

    # Replies.

    def take_page(self, body: bytes) -> list[Delta]:
        """Process a page of the list."""
        meta, objects = self._decode_page(body)
        if not self._token:
            self._begin_list(_number(meta.resource_version))
        deltas: list[Delta] = []
        for each in objects:
            if self._list is not None:
                self._list.add(each.metadata.key)
            self._see(each, deltas)
        self._token = meta.token
        if not self._token:
            self._finish_list(deltas)
        return deltas

    def note_watch_open(self) -> list[Delta]:
        """Process the start of a watch."""
        self._rest = b""
        return self._mark_present()

    def take_events(self, chunk: bytes) -> list[Delta]:
        """Process bytes of a watch, cut anywhere. If `wants_list` is set afterwards, the watch is of no more use."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        deltas: list[Delta] = []
        for line in lines:
            if line and not self._is_listing:
                self._take(line, deltas)
        return deltas

    @property
    def wants_list(self) -> bool:
        return self._is_listing

    def note_rejected(self, status: int, body: bytes) -> list[Delta]:
        """Process a rejected request."""
        if status in _RELIST_STATUSES:
            self.list_again()
        if status not in _ABSENT_STATUSES:
            return []
        why = self._describe_absence(status, parse_rejection(body).message)
        if why == self._absent_why:
            return []
        self._absent_why = why
        return [Delta(DeltaKind.ABSENT, self.followed.resource, why=why)]

    def note_written(self, body: bytes) -> list[Delta]:
        """Process the reply to our own write: the object as stored; any other body is ignored."""
        if self.followed.fields:
            return []
        try:
            written = self._decode(body)
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

    # Deltas.

    def _take(self, line: bytes, deltas: list[Delta]) -> None:
        try:
            event = self._events.decode(line)
        except msgspec.DecodeError:
            self._skip_undecodable(line)
            return
        if event.type == "ERROR":
            self.list_again()
        elif event.type == "BOOKMARK":
            self._advance(event.object.metadata.version)
        else:
            self._take_object(event.type == "DELETED", self._detach(event.object), deltas)

    def _skip_undecodable(self, line: bytes) -> None:
        """Skip the event of an object that does not decode; relist if its version cannot be read either."""
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
            deltas.append(Delta(DeltaKind.GONE, self.followed.resource, seen))
        self._advance(meta.version)

    def _see(self, seen: Any, deltas: list[Delta]) -> None:
        meta: Meta = seen.metadata
        key, version = meta.key, meta.version
        known = self._known.get(key)
        if known is not None:
            if version <= known.version:
                return
            if known.uid != meta.uid:
                deltas.append(self._gone_delta(key, known))
        self._known[key] = _Known(version, meta.uid)
        deltas.append(Delta(DeltaKind.SEEN, self.followed.resource, seen))

    def _begin_list(self, version: int) -> None:
        """Start a list. One older than the last event means that etcd was restored: known versions are void."""
        if version < self._position:
            self._known = {key: _Known(0, known.uid) for key, known in self._known.items()}
            self._position = 0
        self._listed_version = version
        self._list = set() if self._known else None

    def _finish_list(self, deltas: list[Delta]) -> None:
        """Deliver `GONE` for known objects that the list lacks, unless they are newer than the list."""
        if self._list is not None:
            missing = [
                (key, known)
                for key, known in self._known.items()
                if known.version <= self._listed_version and key not in self._list
            ]
            for key, known in missing:
                del self._known[key]
                deltas.append(self._gone_delta(key, known))
        self._is_listing, self._list = False, None
        self._position = self._listed_version
        self._absent_why = ""
        deltas.append(Delta(DeltaKind.SYNCED, self.followed.resource))

    def _mark_present(self) -> list[Delta]:
        """Deliver `SYNCED` if the resource was absent before."""
        if not self._absent_why:
            return []
        self._absent_why = ""
        return [Delta(DeltaKind.SYNCED, self.followed.resource)]

    def _gone_delta(self, key: str, known: _Known) -> Delta:
        namespace, _, name = key.partition("/")
        meta = Meta(name=name, namespace=namespace, uid=known.uid, resource_version=str(known.version))
        return Delta(DeltaKind.GONE, self.followed.resource, self.followed.type(metadata=meta))

    def _advance(self, version: int) -> None:
        self._position = max(self._position, version)

    # Decoding.

    def _decode(self, body: bytes | msgspec.Raw) -> Any:
        return self._detach(self._objects.decode(body))

    def _decode_page(self, body: bytes) -> tuple[ListMeta, list[Any]]:
        """Decode a page; objects that do not decode are left out."""
        try:
            page = self._pages.decode(body)
            return page.metadata, [self._detach(each) for each in page.items]
        except msgspec.ValidationError:
            raw = RAW_PAGES.decode(body)
        objects = []
        for each in raw.items or ():
            try:
                objects.append(self._decode(each))
            except msgspec.ValidationError:
                continue
        return raw.metadata, objects

    def _detach(self, decoded: Any) -> Any:
        """Copy undecoded fields out of the reply, so that one object does not keep its whole page in memory."""
        for name in self._raw_fields:
            setattr(decoded, name, getattr(decoded, name).copy())
        return decoded

    def _describe_absence(self, status: int, message: str) -> str:
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
