"""`load`: the jobs in a text, and what was left out of it. All documents are read before any is taken.

A document that no job can be made of, because it describes storage or serving, is left out with a notice; one of an
unknown kind is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from sterna.errors import UserError, did_you_mean
from sterna.kinds.parsing.documents import Document, Place, read_documents
from sterna.manifests.kubeflow import MPIJob, PyTorchJob, TFJob
from sterna.manifests.pod import SERVING, Pod
from sterna.manifests.refusals import refusal, shown
from sterna.manifests.training_job import TrainingJob
from sterna.model.job import JobSpec

Manifest = TrainingJob | TFJob | MPIJob | PyTorchJob | Pod

KINDS: dict[str, type[TrainingJob] | type[TFJob] | type[MPIJob] | type[PyTorchJob] | type[Pod]] = {
    "TrainingJob": TrainingJob,
    "TFJob": TFJob,
    "MPIJob": MPIJob,
    "PyTorchJob": PyTorchJob,
    "Pod": Pod,
}

_LEFT_OUT = {
    "PersistentVolume": "jobs use the files of this machine",
    "PersistentVolumeClaim": "jobs use the files of this machine",
    "ConfigMap": "jobs use the files of this machine",
    "Secret": "jobs use the files of this machine",
    "Namespace": "there is one namespace here",
    "Service": "replicas find one another on loopback",
    "ServiceAccount": "jobs have the rights of whoever runs them",
}


@dataclass(frozen=True)
class Loaded:
    """What a text holds."""

    jobs: tuple[JobSpec, ...]
    notices: tuple[str, ...] = ()
    """About documents that were left out; what concerns one job is with the job."""


def load(text: str, source: str) -> Loaded:
    """The jobs of every document in a text."""
    return taken(read_documents(text, source))


def load_values(values: Iterable[object], source: str) -> Loaded:
    """The jobs of documents that came as values."""
    return taken(Document(value, source) for value in values)


def taken(documents: Iterable[Document]) -> Loaded:
    """All or none: the first document that cannot be taken refuses them all."""
    jobs: dict[str, JobSpec] = {}
    notices: list[str] = []
    for document in _single(documents):
        reason = _left_out(document)
        if reason:
            notices.append(f"{document.where(())}: {reason}")
            continue
        job = job_of(document)
        if job.name in jobs:
            raise UserError(
                f"{document.where(('metadata', 'name'))}: a job named '{job.name}' comes twice; give one of them "
                "another name."
            )
        jobs[job.name] = job
    return Loaded(tuple(jobs.values()), tuple(notices))


def job_of(document: Document) -> JobSpec:
    """The job that a document describes, with notices of what has no meaning here."""
    manifest, notices = checked(document)
    job = manifest.job()
    return replace(job, notices=tuple(notices)) if notices else job


def checked(document: Document) -> tuple[Manifest, list[str]]:
    """The manifest in a document, every field checked, and notices."""
    kind = _kind(document)
    notices: list[str] = []
    try:
        return KINDS[kind].model_validate(document.value, context=notices), notices
    except ValidationError as error:
        raise refusal(error, document) from None


def _kind(document: Document) -> str:
    value = document.value
    if not isinstance(value, Mapping):
        raise UserError(
            f"{document.where(())}: found {shown(value)}, expected a manifest: apiVersion, kind, metadata, spec."
        )
    kind = value.get("kind")
    if not isinstance(kind, str):
        known = ", ".join(KINDS)
        raise UserError(f"{document.where(('kind',))}: 'kind' is missing; write one of: {known}.")
    if kind not in KINDS:
        raise UserError(f"{document.where(('kind',))}: the kind '{kind}' cannot be run; {did_you_mean(kind, KINDS)}")
    return kind


def _single(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents one by one; a list, or a Kubernetes List, is taken apart."""
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
    lines: list[dict[Place, int]] = [{} for _ in items]
    for at, line in document.lines.items():
        if len(at) > depth and at[:depth] == place and isinstance(index := at[depth], int):
            lines[index][at[depth + 1 :]] = line
    for item, within in zip(items, lines, strict=True):
        yield Document(item, document.source, within)


def _left_out(document: Document) -> str:
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
