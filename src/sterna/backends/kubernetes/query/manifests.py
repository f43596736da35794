"""From the documents of a file to the objects that are to be created in a cluster. Pure.

Every document is read as the operator would read it, so that what it would refuse is refused before anything is made.
What is no job is left out with a notice: it is kubectl's to create. A manifest of Voda's names a category, and every
job of it gets a name of its own (VODA-3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from sterna.backends.kubernetes.query.views import ANY_IMAGE
from sterna.errors import UserError, did_you_mean
from sterna.kinds.labels import GROUP, JOB_LABEL, SERVING
from sterna.kinds.loading import split_lists
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.mpi_v1 import conversion_notices, convert_v1, is_old
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parse import parse_job
from sterna.kinds.parsing.documents import Document
from sterna.kinds.parsing.naming import name_candidates, stamp_name
from sterna.kinds.registry import job_kinds
from sterna.kinds.resource import PODS, Resource

SUBMISSION = f"{GROUP}/submission"
"""Annotation: idempotency key of the submission, to recognise an object whose response was lost."""

_MOST_NAMES = 100
"""Of one second."""
_STAND_IN = "x" * 5
"""Where the server makes up the end of a name."""


class ObjectToCreate(NamedTuple):
    """An object to be created."""

    resource: Resource
    namespace: str
    document: dict[str, Any]
    where: str
    """The file and line it came from."""
    names: tuple[str, ...] = ()
    """Alternative names, used in order if its own is taken."""

    @property
    def name(self) -> str:
        return str(self.document["metadata"].get("name", ""))

    def with_next_name(self) -> ObjectToCreate | None:
        """Return the object under its next alternative name; None if there is none."""
        if not self.names:
            return None
        return self._replace(document=convert_v1(self.document, self.names[0]), names=self.names[1:])


def _resources() -> dict[str, Resource]:
    return {kind.name: kind.resource for kind in job_kinds()}


def orders_of(
    documents: Iterable[Document], namespace: str, key: str = "", at: float = 0.0
) -> tuple[list[ObjectToCreate], list[str]]:
    """Objects in the order of their documents, and notices about those that are left out or not as they were written.
    `at` is the time that names are made of."""
    orders: list[ObjectToCreate] = []
    notices: list[str] = []
    for document in split_lists(documents):
        where, kind = document.where(()), _kind(document)
        resources = _resources()
        if kind in resources and not _is_serving(document.value):
            orders.append(_order(document, resources[kind], namespace, key, at))
            if kind == MPI_JOBS.kind:
                notices += [
                    f"{where}: {orders[-1].name}: {each}" for each in conversion_notices(_plain(document.value))
                ]
        else:
            notices.append(f"{where}: {kind} is left out, because it is no job; create it with kubectl.")
    if not orders and not notices:
        raise UserError("There is nothing to create; give one or more manifests.")
    return _distinct(orders), notices


def _distinct(orders: Iterable[ObjectToCreate]) -> list[ObjectToCreate]:
    found: list[ObjectToCreate] = []
    taken: set[tuple[str, str, str]] = set()
    for order in orders:
        while order.name and _identity(order) in taken:
            further = order.with_next_name()
            if further is None:
                raise UserError(f"{order.where}: {order.resource.kind} '{order.name}' comes twice; rename one of them.")
            order = further
        taken.add(_identity(order))
        found.append(order)
    return found


def _identity(order: ObjectToCreate) -> tuple[str, str, str]:
    return order.resource.kind, order.namespace, order.name


def _kind(document: Document) -> str:
    value = document.value
    if not isinstance(value, Mapping) or not isinstance(value.get("metadata", {}), Mapping):
        raise UserError(f"{document.where(())}: expected a manifest: apiVersion, kind, metadata, spec.")
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        raise UserError(f"{document.where(('kind',))}: 'kind' is missing; write one of: {', '.join(_resources())}.")
    hint = did_you_mean(kind, _resources())
    if kind not in _resources() and hint.startswith("did"):
        raise UserError(f"{document.where(('kind',))}: the kind '{kind}' cannot be run; {hint}")
    return kind


def _is_serving(value: Any) -> bool:
    """True for serving pods, for which training makes room."""
    annotations = (value.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(SERVING)).strip().lower() == "true" if isinstance(annotations, Mapping) else False


def _order(document: Document, resource: Resource, namespace: str, key: str, at: float) -> ObjectToCreate:
    where = document.where(())
    names: tuple[str, ...] = ()
    try:
        whole = _plain(document.value)
        if resource == MPI_JOBS:
            names = _names(whole, at)
            whole = convert_v1(whole, *names[:1])
        metadata = {**(whole.get("metadata") or {})}
        metadata.setdefault("namespace", namespace)
        annotations = {**(metadata.get("annotations") or {})}
        if resource == PODS:
            name = str(metadata.get("name") or metadata.get("generateName", ""))
            metadata["labels"] = {JOB_LABEL: name, **(metadata.get("labels") or {})}
        metadata["annotations"] = {**annotations, SUBMISSION: key} if key else annotations
        whole["metadata"] = metadata
        _check(whole, resource)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UserError(f"{where}: this is no {resource.kind} ({error}); check its metadata.") from None
    return ObjectToCreate(resource, str(metadata["namespace"]), whole, where, names[1:])


def _names(whole: Mapping[str, Any], at: float) -> tuple[str, ...]:
    """Candidate names of a job whose manifest names a category."""
    metadata = whole.get("metadata")
    category = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not is_old(whole) or not isinstance(category, str) or not category:
        return ()
    return tuple(itertools.islice(name_candidates(stamp_name(category, at)), _MOST_NAMES))


def _plain(value: object) -> dict[str, Any]:
    """As JSON has it: YAML knows dates, and keys that are no text."""
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return whole


def _check(whole: Mapping[str, Any], resource: Resource) -> None:
    metadata = whole["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        whole = {**whole, "metadata": {**metadata, "name": f"{metadata['generateName']}{_STAND_IN}"}}
    elif not metadata.get("name"):
        raise UserError("metadata.name is missing; give the job a name.")
    type_: type[JobObject] | type[Pod] = Pod if resource == PODS else JobObject
    parse_job(msgspec.json.decode(msgspec.json.encode(whole), type=type_), resource, ANY_IMAGE)
