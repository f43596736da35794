"""Load the jobs in a text for the local backend: all documents are parsed before any job is accepted.

A document that describes storage or serving is left out with a notice; one of an unknown kind is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from sterna.errors import UserError, did_you_mean
from sterna.kinds.context import ON_ONE_MACHINE
from sterna.kinds.kind import Kind
from sterna.kinds.labels import SERVING
from sterna.kinds.objects import JobObject, Meta
from sterna.kinds.parsing.documents import Document, FieldPath, read_documents
from sterna.kinds.parsing.fields import FieldReader, Fields, expectation_error, format_value, place_named_in
from sterna.kinds.registry import find_kind, job_kinds
from sterna.model.job import JobSpec

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
MAX_NAME_LENGTH = 63

_LEFT_OUT = {
    "PersistentVolume": "jobs use the files of this machine",
    "PersistentVolumeClaim": "jobs use the files of this machine",
    "ConfigMap": "jobs use the files of this machine",
    "Secret": "jobs use the files of this machine",
    "Namespace": "there is one namespace here",
    "Service": "replicas find one another on loopback",
    "ServiceAccount": "jobs have the rights of the user who runs them",
}


class ManifestFields(Fields, rename="camel"):
    """The top level of a manifest."""

    ignored: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Any
    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]


class MetadataFields(Fields):
    """The metadata of a manifest."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences", "finalizers"}
        | {"managedFields", "generateName", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}
    )

    name: Any
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class LoadedJobs:
    """Jobs in a text, and notices."""

    jobs: tuple[JobSpec, ...]
    notices: tuple[str, ...] = ()
    """About documents that were left out; notices about one job are in its specification."""


def load(text: str, source: str) -> LoadedJobs:
    """Load the jobs of every document in a text; `source` names it in error sentences."""
    return load_documents(read_documents(text, source))


def load_values(values: Iterable[object], source: str) -> LoadedJobs:
    """Load the jobs of documents that are values already."""
    return load_documents(Document(value, source) for value in values)


def load_documents(documents: Iterable[Document]) -> LoadedJobs:
    """All or none: the first document that is invalid refuses them all."""
    jobs: dict[str, JobSpec] = {}
    notices: list[str] = []
    for document in split_lists(documents):
        reason = _reason_to_leave_out(document)
        if reason:
            notices.append(f"{document.where(())}: {reason}")
            continue
        job = parse_document(document)
        if job.name in jobs:
            raise UserError(
                f"{document.where(('metadata', 'name'))}: a job named '{job.name}' comes twice; give one of them "
                "another name."
            )
        jobs[job.name] = job
    return LoadedJobs(tuple(jobs.values()), tuple(notices))


def parse_document(document: Document) -> JobSpec:
    """The job that a document describes, with notices about fields that have no effect on one machine."""
    kind, job, notices = job_object(document)
    assert kind.parse is not None
    try:
        spec = kind.parse(job, ON_ONE_MACHINE).spec
    except UserError as error:
        raise locate(error, document) from None
    return replace(spec, notices=(*notices, *spec.notices)) if notices else spec


def job_object(document: Document) -> tuple[Kind, JobObject, list[str]]:
    """The object in a document, with its kind and notices; everything but its `spec` is checked."""
    kind = _kind(document)
    reader = FieldReader(runs_images=False)
    try:
        manifest = reader.decode(document.value, ManifestFields, "")
        if manifest.api_version not in kind.api_versions:
            wanted = f"one of {', '.join(kind.api_versions)}"
            raise expectation_error("apiVersion", wanted, manifest.api_version)
        metadata = reader.decode(manifest.metadata, MetadataFields, "metadata")
        _check_name(metadata.name)
        spec = msgspec.Raw(msgspec.json.encode(manifest.spec))
    except UserError as error:
        raise locate(error, document) from None
    except (TypeError, ValueError, RecursionError):
        raise UserError(f"{document.where(())}: the manifest cannot be read; check what was submitted.") from None
    meta = Meta(name=metadata.name, labels=metadata.labels, annotations=metadata.annotations)
    return kind, JobObject(meta, str(manifest.api_version), kind.name, spec), reader.notices


def locate(error: UserError, document: Document) -> UserError:
    """The error with the file and line of the field that its sentence begins with."""
    return UserError(f"{document.where(place_named_in(str(error)))}: {error}")


def split_lists(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents one by one; a list, or a Kubernetes List, is split."""
    for document in documents:
        value = document.value
        if isinstance(value, Mapping) and value.get("kind") == "List" and isinstance(value.get("items"), list):
            yield from _items(document, value["items"], ("items",))
        elif isinstance(value, list):
            yield from _items(document, value, ())
        else:
            yield document


def _items(document: Document, items: list[object], place: tuple[str, ...]) -> Iterator[Document]:
    depth = len(place)
    lines: list[dict[FieldPath, int]] = [{} for _ in items]
    for at, line in document.lines.items():
        if len(at) > depth and at[:depth] == place and isinstance(index := at[depth], int):
            lines[index][at[depth + 1 :]] = line
    for item, within in zip(items, lines, strict=True):
        yield Document(item, document.source, within)


def _kind(document: Document) -> Kind:
    value = document.value
    if not isinstance(value, Mapping):
        raise UserError(
            f"{document.where(())}: found {format_value(value)}, expected a manifest: apiVersion, kind, metadata, spec."
        )
    name, known = value.get("kind"), [kind.name for kind in job_kinds()]
    if not isinstance(name, str):
        raise UserError(f"{document.where(('kind',))}: 'kind' is missing; write one of: {', '.join(known)}.")
    kind = find_kind(name)
    if kind is None or kind.parse is None:
        raise UserError(f"{document.where(('kind',))}: the kind '{name}' cannot be run; {did_you_mean(name, known)}")
    return kind


def _check_name(name: object) -> None:
    """Accept a name that is safe as the name of a folder, and that Kubernetes would accept too."""
    if not isinstance(name, str):
        raise expectation_error("metadata.name", "a name, as text; put quotes around it", name)
    if len(name) > MAX_NAME_LENGTH or not NAME.fullmatch(name):
        wanted = f"a name of at most {MAX_NAME_LENGTH} small letters, digits, '-' and '.', such as mnist-1"
        raise expectation_error("metadata.name", wanted, name)


def _reason_to_leave_out(document: Document) -> str:
    """Why no job is made of a document; empty if one is."""
    value = document.value
    if not isinstance(value, Mapping):
        return ""
    kind, name = value.get("kind"), _name(value)
    if kind in _LEFT_OUT:
        return f"{kind} {name} is left out: {_LEFT_OUT[kind]}."
    if kind == "Deployment" and _is_serving(_inner(value, "spec", "template")):
        return f"the serving pods of Deployment {name} are left out: they need a cluster that runs their image."
    if kind == "Pod" and _is_serving(value) and not _has_command(value):
        return f"the serving Pod {name} is left out: it needs a cluster that runs its image."
    return ""


def _inner(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _name(value: Mapping[object, object]) -> str:
    name = _inner(value, "metadata", "name")
    return name if isinstance(name, str) else "without a name"


def _is_serving(value: object) -> bool:
    return str(_inner(value, "metadata", "annotations", SERVING)).lower() == "true"


def _has_command(value: object) -> bool:
    containers = _inner(value, "spec", "containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    return bool(_inner(first, "command"))
