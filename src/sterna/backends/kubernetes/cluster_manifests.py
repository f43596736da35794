"""From the documents of a file to the objects that are to be created in a cluster. Pure.

Every document is read as the operator would read it, so that what it would refuse is refused before anything is made.
What is no job is left out with a notice: it is kubectl's to create.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from sterna.backends.kubernetes.apiserver import PODS, Resource
from sterna.backends.kubernetes.cluster_views import ANY_IMAGE
from sterna.backends.kubernetes.jobs import GROUP, JOB_LABEL, SERVING
from sterna.backends.kubernetes.kinds.mpi_v1 import translated_v1
from sterna.backends.kubernetes.kinds.reading import read
from sterna.backends.kubernetes.objects import JobObject, Pod
from sterna.backends.kubernetes.sightings import KINDS
from sterna.errors import UserError, did_you_mean
from sterna.manifests.documents import Document

SUBMISSION = f"{GROUP}/submission"
"""Annotation: under which key somebody created it, so that they know their own again when an answer was lost."""

_RESOURCES = {resource.kind: resource for resource in KINDS}
_STAND_IN = "x" * 5
"""Where the server makes up the end of a name."""


class Order(NamedTuple):
    """An object to be created."""

    resource: Resource
    namespace: str
    document: dict[str, Any]
    where: str
    """The file and line it came from."""

    @property
    def name(self) -> str:
        return str(self.document["metadata"].get("name", ""))


def orders_of(documents: Iterable[Document], namespace: str, key: str = "") -> tuple[list[Order], list[str]]:
    """Objects in the order of their documents, and notices about those that are left out."""
    orders: list[Order] = []
    notices: list[str] = []
    for document in _single(documents):
        where, kind = document.where(()), _kind(document)
        if kind in _RESOURCES and not _is_serving(document.value):
            orders.append(_order(document, _RESOURCES[kind], namespace, key))
        else:
            notices.append(f"{where}: {kind} is left out, because it is no job; create it with kubectl.")
    if not orders and not notices:
        raise UserError("There is nothing to create; give one or more manifests.")
    taken: set[tuple[str, str, str]] = set()
    for order in orders:
        identity = (order.resource.kind, order.namespace, order.name)
        if order.name and identity in taken:
            raise UserError(f"{order.where}: {order.resource.kind} '{order.name}' comes twice; rename one of them.")
        taken.add(identity)
    return orders, notices


def _single(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents one by one; a list, or a Kubernetes List, is taken apart."""
    for document in documents:
        value = document.value
        items = value.get("items") if isinstance(value, Mapping) and value.get("kind") == "List" else value
        if isinstance(items, list):
            yield from (Document(item, document.source, {(): document.lines.get((), 1)}) for item in items)
        else:
            yield document


def _kind(document: Document) -> str:
    value = document.value
    if not isinstance(value, Mapping) or not isinstance(value.get("metadata", {}), Mapping):
        raise UserError(f"{document.where(())}: expected a manifest: apiVersion, kind, metadata, spec.")
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        raise UserError(f"{document.where(('kind',))}: 'kind' is missing; write one of: {', '.join(_RESOURCES)}.")
    hint = did_you_mean(kind, _RESOURCES)
    if kind not in _RESOURCES and hint.startswith("did"):
        raise UserError(f"{document.where(('kind',))}: the kind '{kind}' cannot be run; {hint}")
    return kind


def _is_serving(value: Any) -> bool:
    """Whether it is a pod for which training makes room (DRAGON-54)."""
    annotations = (value.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(SERVING)).strip().lower() == "true" if isinstance(annotations, Mapping) else False


def _order(document: Document, resource: Resource, namespace: str, key: str) -> Order:
    where = document.where(())
    try:
        whole = _plain(document.value)
        if resource.plural == "mpijobs":
            whole = translated_v1(whole)
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
    return Order(resource, str(metadata["namespace"]), whole, where)


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
    read(msgspec.json.decode(msgspec.json.encode(whole), type=type_), resource, ANY_IMAGE)
