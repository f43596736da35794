"""Conversion of an MPIJob `kubeflow.org/v1`, as Voda's users have it, to `v2beta1`.

In `v2beta1` the run policy has a field of its own; workers are reached by ssh, so their images need an sshd;
`discover_hosts.sh` lists hosts without slots, so Horovod needs `--slots-per-host`. A worker that selects a type of GPU
gets one GPU even if it requests none. Every converted job begins suspended and its workers name Sterna as scheduler, so
that no pod runs before Sterna has placed it; all its pods get Voda's label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sterna.errors import UserError
from sterna.kinds.labels import SCHEDULER
from sterna.kinds.mpi_job import ACCELERATOR, MPI_JOBS
from sterna.kinds.parsing.annotations import CATEGORY
from sterna.kinds.parsing.fields import decode_fields
from sterna.kinds.parsing.resource_requests import GPUS

_RUN_POLICY = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy")
_KEPT = ("slotsPerWorker", "sshAuthMountPath", "mpiImplementation")
_DISCOVERY = re.compile(r"--host-discovery-script[= ]\s*\S*discover_hosts\.sh")
_OPTION = "--host-discovery-script"
_SLOTS = re.compile(r"--slots-per-host\b")
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


def is_old(job: Mapping[str, Any]) -> bool:
    """True for versions that the MPI operator no longer serves."""
    return job.get("apiVersion") != MPI_JOBS.api_version


def convert_v1(job: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Convert a job to `v2beta1`. `name`: a unique one, if the written name is a category. A job of `v2beta1` keeps all
    its fields and only gets what Sterna adds."""
    whole = decode_fields(dict(job), dict[str, Any], "the manifest")
    spec, metadata = _mapping(whole, "spec"), _mapping(whole, "metadata")
    written, groups = str(metadata.get("name", "")), _groups(spec)
    accelerator = _selector(groups["Worker"]).get(ACCELERATOR, "")
    if is_old(whole):
        spec, groups = _convert_spec(spec, groups)
        groups["Launcher"] = _with_job_name(groups["Launcher"], name or written)
    elif name:
        groups["Launcher"] = _with_job_name(groups["Launcher"], name)
    groups["Worker"] = _with_scheduler(groups["Worker"])
    for type_ in ("Launcher", "Worker"):
        groups[type_] = _with_label(groups[type_], accelerator)
    policy = {**_mapping(spec, "runPolicy"), "suspend": True}
    return {
        "apiVersion": MPI_JOBS.api_version,
        "kind": MPI_JOBS.kind,
        "metadata": _metadata(metadata, written, name, accelerator),
        "spec": {**spec, "runPolicy": policy, "mpiReplicaSpecs": groups},
    }


def conversion_notices(job: Mapping[str, Any]) -> list[str]:
    """Notices about what the conversion assumes."""
    if not is_old(job):
        return []
    worker = _groups(_mapping(job, "spec"))["Worker"]
    if ACCELERATOR not in _selector(worker):
        return [f"it names no type of GPU, so that its workers may be on any node; select one by {ACCELERATOR}."]
    if not _has_gpu(_parts(worker)[2]):
        return [f"its workers ask for no GPU; each of them gets one ({GPUS[0]}: 1), as Voda gives it."]
    return []


def _groups(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    groups = {key.title(): _mapping(value, None) for key, value in _mapping(spec, "mpiReplicaSpecs").items()}
    for type_ in ("Launcher", "Worker"):
        if type_ not in groups:
            raise UserError(f"spec.mpiReplicaSpecs.{type_} is missing; an MPIJob has a Launcher and Workers.")
    return groups


def _convert_spec(
    spec: Mapping[str, Any], groups: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Move the fields of an old job to where `v2beta1` has them."""
    slots = spec.get("slotsPerWorker")
    slots = slots if isinstance(slots, int) and slots > 0 else 1
    policy = {key: spec[key] for key in _RUN_POLICY if key in spec}
    kept = {key: spec[key] for key in _KEPT if key in spec}
    worker = {key: value for key, value in groups["Worker"].items() if key != "restartPolicy"}
    if ACCELERATOR in _selector(worker):
        worker = _with_gpu(worker)
    renewed = {"Launcher": _with_slots_option(groups["Launcher"], slots), "Worker": worker}
    return {**kept, "runPolicy": {**policy, **_mapping(spec, "runPolicy")}}, renewed


def _metadata(metadata: Mapping[str, Any], written: str, name: str, accelerator: str) -> dict[str, Any]:
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_SIDE}
    labels = dict(_mapping(metadata, "labels"))
    if accelerator:
        labels[ACCELERATOR] = accelerator
    annotations = dict(_mapping(metadata, "annotations"))
    if name:
        annotations.setdefault(CATEGORY, written)
    return {
        **kept,
        "name": name or written,
        **({"labels": labels} if labels else {}),
        **({"annotations": annotations} if annotations else {}),
    }


def _with_job_name(group: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Set JOB_NAME to the job's name, whatever was written."""
    template, spec, containers = _parts(group)
    env = [each for each in _list(containers[0].get("env")) if not _is_named(each, "JOB_NAME")]
    main = {**containers[0], "env": [{"name": "JOB_NAME", "value": name}, *env]}
    return {**group, "template": _rebuilt(template, spec, [main, *containers[1:]])}


def _with_slots_option(group: Mapping[str, Any], slots: int) -> dict[str, Any]:
    template, spec, containers = _parts(group)
    main = dict(containers[0])
    words = [*_list(main.get("command")), *_list(main.get("args"))]
    text = " ".join(each for each in words if isinstance(each, str))
    if _DISCOVERY.search(text) and not _SLOTS.search(text):
        for key in ("command", "args"):
            if key in main:
                main[key] = _with_slots(_list(main[key]), slots)
    return {**group, "replicas": 1, "template": _rebuilt(template, spec, [main, *containers[1:]])}


def _with_slots(words: list[Any], slots: int) -> list[Any]:
    """Add the option after the script's path, whether that is a word or part of a line for a shell."""
    found: list[Any] = []
    for word in words:
        if isinstance(word, str) and _DISCOVERY.search(word):
            word = _DISCOVERY.sub(lambda match: f"{match[0]} --slots-per-host {slots}", word, count=1)
            found.append(word)
        elif isinstance(word, str) and word.endswith("discover_hosts.sh") and found and found[-1] == _OPTION:
            found += [word, "--slots-per-host", str(slots)]
        else:
            found.append(word)
    return found


def _with_scheduler(group: Mapping[str, Any]) -> dict[str, Any]:
    template, spec, containers = _parts(group)
    return {**group, "template": _rebuilt(template, {**spec, "schedulerName": SCHEDULER}, containers)}


def _with_gpu(group: dict[str, Any]) -> dict[str, Any]:
    template, spec, containers = _parts(group)
    if _has_gpu(containers):
        return group
    resources = _mapping(containers[0], "resources")
    limits = {**_mapping(resources, "limits"), GPUS[0]: 1}
    main = {**containers[0], "resources": {**resources, "limits": limits}}
    return {**group, "template": _rebuilt(template, spec, [main, *containers[1:]])}


def _has_gpu(containers: Iterable[Mapping[str, Any]]) -> bool:
    return any(gpu in _mapping(_mapping(each, "resources"), "limits") for each in containers for gpu in GPUS)


def _with_label(group: dict[str, Any], accelerator: str) -> dict[str, Any]:
    if not accelerator:
        return group
    template = group["template"]
    metadata = _mapping(template, "metadata")
    labels = {**_mapping(metadata, "labels"), ACCELERATOR: accelerator}
    return {**group, "template": {**template, "metadata": {**metadata, "labels": labels}}}


def _selector(group: Mapping[str, Any]) -> dict[str, str]:
    selector = _mapping(_mapping(_mapping(group, "template"), "spec"), "nodeSelector")
    return {key: value for key, value in selector.items() if isinstance(value, str)}


def _parts(group: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    template = _mapping(group, "template")
    spec = _mapping(template, "spec")
    containers = [each for each in _list(spec.get("containers")) if isinstance(each, dict)]
    if not containers:
        raise UserError("A template of the MPIJob has no containers; add one that says what to run.")
    return template, spec, containers


def _rebuilt(template: dict[str, Any], spec: dict[str, Any], containers: list[Any]) -> dict[str, Any]:
    return {**template, "spec": {**spec, "containers": containers}}


def _mapping(value: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    inner = value if key is None else value.get(key)
    return dict(inner) if isinstance(inner, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_named(variable: Any, name: str) -> bool:
    return isinstance(variable, Mapping) and variable.get("name") == name
