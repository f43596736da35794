"""The memory of the API server that is not there: objects, their versions, and the history that watches are fed from.

Knows nothing of kinds; `kube_rules.py` does. Every change makes a new object, so what was handed out never changes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sterna.backends.kubernetes.api.selectors import LabelSelector
from sterna.kinds.resource import Resource

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty where there is none) and name."""


class Refused(Exception):  # noqa: N818  (an answer, as the server gives it)
    """The request is turned down."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class Event(NamedTuple):
    """One change of one object."""

    version: int
    before: Object | None
    after: Object | None
    """None: it is gone; `before` is its last state then, with the version of its end."""


@dataclass(frozen=True)
class Selection:
    """The objects that a list or a watch selects."""

    namespace: str = ""
    labels: LabelSelector = field(default_factory=lambda: LabelSelector(""))
    fields: tuple[tuple[str, str, bool], ...] = ()
    """Path, value, and whether it must be equal."""

    @classmethod
    def of(cls, namespace: str, query: Mapping[str, str]) -> Selection:
        fields = []
        for term in filter(None, query.get("fieldSelector", "").split(",")):
            path, operator, value = term.partition("!=") if "!=" in term else term.partition("=")
            fields.append((path, value.lstrip("="), operator == "="))
        return cls(namespace, LabelSelector(query.get("labelSelector", "")), tuple(fields))

    def takes(self, each: Object | None) -> bool:
        if each is None:
            return False
        meta = each["metadata"]
        return (
            self.namespace in ("", meta.get("namespace", ""))
            and self.labels.takes(meta.get("labels") or {})
            and all((str(_at(each, path)) == value) is is_equal for path, value, is_equal in self.fields)
        )


def _at(each: Object, path: str) -> object:
    value: Any = each
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value


class Store:
    """All objects of all resources."""

    def __init__(self) -> None:
        self.revision = 100
        self.objects: dict[Resource, dict[Key, Object]] = {}
        self.history: dict[Resource, list[Event]] = {}
        self.compacted = self.revision
        """Watches and pages from before this version are told that it is gone."""
        self.listeners: list[Callable[[Resource, Event], None]] = []
        self._pages: dict[str, tuple[int, list[Object]]] = {}

    def find(self, resource: Resource, key: Key) -> Object | None:
        return self.objects.get(resource, {}).get(key)

    def get(self, resource: Resource, key: Key) -> Object:
        found = self.find(resource, key)
        if found is None:
            raise Refused(404, "NotFound", f'{named(resource)} "{key[1]}" not found')
        return found

    def commit(self, resource: Resource, key: Key, after: Object | None) -> Object:
        """Put or (None) remove; the object as it is since then, or was at its end."""
        self.revision += 1
        before = self.find(resource, key)
        stamp_name = copy_of(after if after is not None else self.get(resource, key))
        stamp_name["metadata"]["resourceVersion"] = str(self.revision)
        if after is None:
            del self.objects[resource][key]
            event = Event(self.revision, stamp_name, None)
        else:
            self.objects.setdefault(resource, {})[key] = stamp_name
            event = Event(self.revision, before, stamp_name)
        self.history.setdefault(resource, []).append(event)
        for listener in list(self.listeners):
            listener(resource, event)
        return stamp_name

    def compact(self) -> None:
        """Forget the past."""
        self.compacted = self.revision
        self.history.clear()
        self._pages.clear()

    # Lists and watches.

    def page(self, resource: Resource, selection: Selection, limit: int, token: str) -> tuple[int, list[Object], str]:
        """Version, objects and the token of the next page; all pages show one instant."""
        if token:
            name, _, start = base64.b64decode(token).decode().partition("/")
            if name not in self._pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            version, found = self._pages[name]
            begin = int(start)
        else:
            objects = self.objects.get(resource, {})
            found = [each for _, each in sorted(objects.items()) if selection.takes(each)]
            version, begin, name = self.revision, 0, f"{self.revision}.{len(self._pages)}"
        end = begin + limit if limit else len(found)
        if end >= len(found):
            self._pages.pop(name, None)
            return version, found[begin:], ""
        self._pages[name] = (version, found)
        return version, found[begin:end], base64.b64encode(f"{name}/{end}".encode()).decode()

    def since(self, resource: Resource, selection: Selection, version: int) -> list[bytes]:
        """Lines of a watch that starts at a version."""
        if version < self.compacted:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self.compacted})")
        events = (event for event in self.history.get(resource, ()) if event.version > version)
        return [line for event in events if (line := line_of(event, selection)) is not None]


def line_of(event: Event, selection: Selection) -> bytes | None:
    """Return the line of a watch for an event; an object that leaves the selection is sent as deleted."""
    was = selection.takes(event.before)
    if event.after is None:
        return encoded({"type": "DELETED", "object": event.before}) + b"\n" if was else None
    if selection.takes(event.after):
        return encoded({"type": "MODIFIED" if was else "ADDED", "object": event.after}) + b"\n"
    if not was or event.before is None:
        return None
    left = copy_of(event.before)
    left["metadata"]["resourceVersion"] = str(event.version)
    return encoded({"type": "DELETED", "object": left}) + b"\n"


def bookmark(resource: Resource, version: int) -> bytes:
    meta = {"resourceVersion": str(version)}
    envelope = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return encoded({"type": "BOOKMARK", "object": envelope}) + b"\n"


def error_line(refused: Refused) -> bytes:
    return encoded({"type": "ERROR", "object": status_of(refused)}) + b"\n"


def status_of(refused: Refused) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refused.message,
        "reason": refused.reason,
        "code": refused.status,
    }


def named(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def copy_of(each: Object) -> Object:
    """Deep, and of plain JSON."""
    copied: Object = json.loads(json.dumps(each))
    return copied


def walk(store: Store) -> Iterator[tuple[Resource, Key, Object]]:
    """Everything there is; safe against changes on the way."""
    for resource, objects in list(store.objects.items()):
        for key, each in list(objects.items()):
            yield resource, key, each
