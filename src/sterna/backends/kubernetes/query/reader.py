"""Blocking requests of `KubernetesCluster` to an API server, with rejections as sentences for users.

The operator uses watches and the write queue instead (`transport/client.py`). Writes are never retried here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from sterna.backends.kubernetes.api.resources import ApiServer, DeltaKind, Followed, WriteResult
from sterna.backends.kubernetes.transport.reflector import Reflector
from sterna.errors import Retry, UserError
from sterna.kinds.kind import INSTALL_HINT
from sterna.kinds.registry import find_kind
from sterna.kinds.resource import Resource
from sterna.service.errors import ForbiddenError, NameTakenError, NotFoundError

_MANAGER = "fieldManager=sterna-cli"
_MERGE = "application/merge-patch+json"
_MOST_THREADS = 8
_T = TypeVar("_T")
_MAY_NOT = re.compile(r'User "(.*?)" cannot (\w+) resource "(.*?)"(?: in API group "[^"]*")?(.*)', re.DOTALL)
_INVALID = re.compile(r'^\S+ "[^"]*" is invalid: ')
_LONGEST_ANSWER = 400


class UnknownKindError(UserError):
    """The server does not know the resource."""


class ConflictError(UserError):
    """The object was changed since it was read."""


class ApiReader:
    """Requests to one API server with the credentials of one caller."""

    def __init__(self, server: ApiServer, context: str = "") -> None:
        self.server, self._context = server, context

    def run_together(self, requests: Sequence[Callable[[], _T]]) -> list[_T | UserError]:
        """Run several requests in threads; return for each its result or rejection, in order."""
        if len(requests) < 2:
            return [_outcome(request) for request in requests]
        with ThreadPoolExecutor(_MOST_THREADS) as threads:
            return list(threads.map(_outcome, requests))

    # Reading.

    def list_all(self, wanted: Followed) -> list[Any]:
        """Return all objects of a resource, read page by page."""
        reflector = Reflector(wanted)
        found: list[Any] = []
        while reflector.wants_list:
            request = reflector.request()
            answer = self.server.ask("GET", request.path, query=request.query)
            if not answer.is_done:
                raise self.refusal(answer, wanted.resource, wanted.namespace)
            with _read_as_json():
                found += [delta.object for delta in reflector.take_page(answer.body) if delta.change is DeltaKind.SEEN]
        return found

    def get(self, resource: Resource, type_: type[_T], namespace: str, name: str) -> _T:
        """Return one object; raise `NotFoundError` if there is none."""
        answer = self.server.ask("GET", resource.path(namespace, quote(name, safe="")))
        if not answer.is_done:
            raise self.refusal(answer, resource, namespace, name)
        with _read_as_json():
            return msgspec.json.decode(answer.body, type=type_)

    # Writing.

    def create(
        self, resource: Resource, namespace: str, document: Mapping[str, Any], is_dry_run: bool = False
    ) -> bytes:
        """Create an object; return it as the server stored it or, in a dry run, would store it."""
        query = _query("fieldValidation=Strict", is_dry_run)
        answer = self.server.ask("POST", resource.path(namespace), msgspec.json.encode(document), query)
        return self._body_of(answer, resource, namespace, str(document.get("metadata", {}).get("name", "")))

    def patch(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], is_dry_run: bool = False
    ) -> bytes:
        """Apply a merge patch; return the object after it."""
        path, query = resource.path(namespace, name), _query("fieldValidation=Strict", is_dry_run)
        answer = self.server.ask("PATCH", path, msgspec.json.encode(patch), query, _MERGE)
        return self._body_of(answer, resource, namespace, name)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete an object and, in the background, those that it owns."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        answer = self.server.ask("DELETE", resource.path(namespace, name), msgspec.json.encode(options))
        self._body_of(answer, resource, namespace, name)

    def _body_of(self, answer: WriteResult, resource: Resource, namespace: str, name: str) -> bytes:
        if not answer.is_done:
            raise self.refusal(answer, resource, namespace, name)
        return answer.body

    # Rejections.

    def refusal(
        self, answer: WriteResult, resource: Resource, namespace: str = "", name: str = ""
    ) -> UserError | Retry:
        """Translate an error response into an exception with a sentence for the user."""
        message = " ".join(answer.message.split())[:_LONGEST_ANSWER].rstrip(".")
        where = f" in the namespace '{namespace}'" if namespace else ""
        match answer.status:
            case 401:
                return ForbiddenError(f"{self._cluster()} does not accept your login; log in again, or choose another.")
            case 403:
                return ForbiddenError(_forbidden(message, where))
            case 404:
                return self._absent(message, resource, namespace, name)
            case 409 if answer.reason == "AlreadyExists":
                if message.startswith("object is being deleted"):
                    return NameTakenError(
                        f"{resource.kind} '{name}'{where} is still being deleted; try again when it is gone."
                    )
                return NameTakenError(f"A {resource.kind} named '{name}' exists already{where}; choose another name.")
            case 409:
                return ConflictError(
                    f"{resource.kind} '{name}'{where} was changed by somebody else just now; try again."
                )
            case 400 | 413 | 422:
                return UserError(f"{self._cluster()} refuses {resource.kind} '{name}': {_INVALID.sub('', message)}.")
        return Retry(
            f"{self._cluster()} answered {answer.status} ({message or answer.reason or 'no reason'}); try again."
        )

    def _absent(self, message: str, resource: Resource, namespace: str, name: str) -> UserError:
        if message.startswith("namespaces "):
            return NotFoundError(f"There is no namespace '{namespace}'; create it, or choose another with -n.")
        if name and "could not find the requested resource" not in message and message != "404 page not found":
            where = f" in the namespace '{namespace}'" if namespace else ""
            return NotFoundError(f"There is no {resource.kind} '{name}'{where}.")
        kind = find_kind(resource.kind)
        install = kind.install_hint if kind else INSTALL_HINT
        return UnknownKindError(f"{self._cluster()} does not know the kind {resource.kind}; {install}.")

    def _cluster(self) -> str:
        return f"The cluster of the context '{self._context}'" if self._context else "The cluster"


def _outcome(request: Callable[[], _T]) -> _T | UserError:
    try:
        return request()
    except UserError as error:
        return error


def _forbidden(message: str, where: str) -> str:
    found = _MAY_NOT.search(message)
    if found is None:
        return f"The cluster does not allow this: {message}."
    user, verb, what, rest = found.groups()
    place = rest.strip() or where.strip()
    place = place.replace('in the namespace "', "in the namespace '").replace('"', "'")
    return (
        f"You ({user}) may not {verb} {what} {place}".rstrip() + "; ask the cluster's administrator for that right, or "
        "choose another context or namespace."
    )


def _query(checks: str, is_dry_run: bool) -> str:
    return "&".join([_MANAGER, checks, *(["dryRun=All"] if is_dry_run else [])])


@contextmanager
def _read_as_json() -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise UserError(
            f"What answers there is no API server ({error}); check the address in the kubeconfig."
        ) from None
