"""What the API server that is not there knows of kinds: what a new object gets, what a write may change, how one ends.

As strict as matters to the operator, and no stricter: the contract suite compares it with a real server.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from sterna.backends.kubernetes.api.resources import EVENTS, LEASES, NODES, SERVICES
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube_store import Object, Refused, copy_of, named

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")

_UNITS = {"m": 0.001, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "k": 1e3, "M": 1e6, "G": 1e9}

FOREGROUND = "foregroundDeletion"
GRACE_SECONDS = 30

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_ANSWERED_BY_THE_OBJECT = frozenset({PODS, SERVICES, SERVICE_ACCOUNTS})
_HAS_NO_STATUS = frozenset({EVENTS, LEASES})
_FIXED_META = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHANGEABLE_IN_A_POD = frozenset({"tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"})


def is_custom(resource: Resource) -> bool:
    return "." in resource.group and not resource.group.endswith(".k8s.io")


def has_status(resource: Resource) -> bool:
    return resource not in _HAS_NO_STATUS


def needs_version(resource: Resource) -> bool:
    """True if a replacement must name the version it replaces."""
    return is_custom(resource) or resource == LEASES


def answers_with_object(resource: Resource) -> bool:
    """True if an immediate deletion is answered with the deleted object."""
    return resource in _ANSWERED_BY_THE_OBJECT


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def invalid(resource: Resource, name: str, why: str) -> Refused:
    return Refused(422, "Invalid", f'{resource.kind} "{name}" is invalid: {why}')


# New objects.


def admitted(resource: Resource, given: Object, namespace: str, uid: str, now: float) -> Object:
    """A new object as it is stored."""
    each = copy_of(given)
    meta = each.setdefault("metadata", {})
    name = meta.get("name", "")
    if each.get("kind", resource.kind) != resource.kind or each.get("apiVersion", "") not in ("", resource.api_version):
        raise Refused(400, "BadRequest", f"the object is no {resource.kind} of {resource.api_version}")
    if meta.get("resourceVersion"):
        raise Refused(500, "", "resourceVersion should not be set on objects to be created")
    if not name:
        raise invalid(resource, "", "metadata.name: Required value: name or generateName is required")
    if not _NAME.fullmatch(name) or len(name) > (63 if resource == SERVICES else 253):
        raise invalid(resource, name, f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain')
    if resource.is_namespaced and meta.setdefault("namespace", namespace) != namespace:
        raise Refused(400, "BadRequest", "the namespace of the provided object does not match the request")
    each.update(kind=resource.kind, apiVersion=resource.api_version)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
        meta.pop(field, None)
    meta.update(uid=uid, creationTimestamp=stamp(now))
    if is_custom(resource) or resource == PODS:
        meta["generation"] = 1
    if has_status(resource) and resource != NODES:
        each.pop("status", None)
    if resource == PODS:
        _complete_pod(each)
    return each


def _complete_pod(pod: Object) -> None:
    spec, name = pod.setdefault("spec", {}), pod["metadata"]["name"]
    if not spec.get("containers"):
        raise invalid(PODS, name, "spec.containers: Required value")
    for container in spec["containers"]:
        if not container.get("name") or not container.get("image"):
            raise invalid(PODS, name, "spec.containers[0].image: Required value")
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    pod["status"] = {"phase": "Pending"}


# Changes.


def changed(resource: Resource, before: Object, wanted: Object, subresource: str, is_whole: bool = False) -> Object:
    """Return the stored form of an update: immutable parts are kept or rejected."""
    after = copy_of(wanted)
    _check_version(resource, before, after, subresource, is_whole)
    if subresource == "status":
        after = {**copy_of(before), "status": after.get("status", {})}
    elif subresource == "resize":
        after = _resized(before, after)
    elif has_status(resource) and "status" in before:
        after["status"] = before["status"]
    elif has_status(resource):
        after.pop("status", None)
    meta, old = after.setdefault("metadata", {}), before["metadata"]
    for field in _FIXED_META:
        meta.pop(field, None)
        if field in old:
            meta[field] = old[field]
    meta["resourceVersion"] = old["resourceVersion"]
    after.update(kind=resource.kind, apiVersion=resource.api_version)
    if resource == PODS and not subresource:
        _check_pod(before, after)
    if "generation" in old:
        meta["generation"] = old["generation"] + (before.get("spec") != after.get("spec"))
    return after


def _check_version(resource: Resource, before: Object, after: Object, subresource: str, is_whole: bool) -> None:
    """A status takes any uid: seen on a real server, hence here."""
    old, meta = before["metadata"], after.get("metadata") or {}
    name, version = old["name"], str(meta.get("resourceVersion", ""))
    if version not in ("", old["resourceVersion"]):
        what = "the object has been modified; please apply your changes to the latest version and try again"
        raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {named(resource)} "{name}": {what}')
    if not subresource and meta.get("uid") not in (None, "", old["uid"]):
        if not is_whole:
            raise invalid(resource, name, f"metadata.uid: Invalid value: {meta['uid']}: field is immutable")
        what = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
        raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {named(resource)} "{name}": {what}')


def _check_pod(before: Object, after: Object) -> None:
    old, new = before["spec"], after.get("spec", {})
    gates = {gate["name"] for gate in old.get("schedulingGates", ())}
    fixed = {key for key in {*old, *new} if old.get(key) != new.get(key)} - _CHANGEABLE_IN_A_POD - {"schedulingGates"}
    if fixed or not {gate["name"] for gate in new.get("schedulingGates", ())} <= gates:
        raise invalid(PODS, before["metadata"]["name"], "spec: Forbidden: pod updates may not change fields")


def _resized(before: Object, after: Object) -> Object:
    """Requests and limits of containers, and nothing else."""
    result = copy_of(before)
    wanted = {each["name"]: each.get("resources", {}) for each in after.get("spec", {}).get("containers", ())}
    if set(wanted) != {each["name"] for each in result["spec"]["containers"]}:
        raise invalid(PODS, before["metadata"]["name"], "spec: Forbidden: containers may not be added or removed")
    for container in result["spec"]["containers"]:
        container["resources"] = wanted[container["name"]]
    return result


def check_room(pod: Object, node: Object | None) -> None:
    """A pod may not be made larger than its node; whether there is room left is the kubelet's to say."""
    name = pod["metadata"]["name"]
    if node is None:
        raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: node "{pod["spec"].get("nodeName")}" not found')
    for resource in ("cpu", "memory"):
        room = quantity(node.get("status", {}).get("allocatable", {}).get(resource, 0))
        if needs(pod, resource) > room:
            why = f"node didn't have enough allocatable resources: {resource}"
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {why}')


def needs(pod: Object, resource: str) -> float:
    """Sum of the requests of all containers."""
    return sum(quantity(each["resources"].get("requests", {}).get(resource, 0)) for each in pod["spec"]["containers"])


def quantity(text: Any) -> float:
    text = str(text)
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    return float(text)


def bound(pod: Object, binding: Object, now: float) -> Object:
    """The pod on its node; whether the node exists is not asked."""
    name, meta = pod["metadata"]["name"], pod["metadata"]
    node = binding.get("target", {}).get("name", "")

    def conflict(why: str) -> Refused:
        return Refused(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": {why}')

    if not node:
        raise invalid(PODS, name, "target.name: Required value")
    if binding.get("metadata", {}).get("uid") not in (None, "", meta["uid"]):
        raise conflict("Precondition failed: UID in precondition")
    if meta.get("deletionTimestamp"):
        raise conflict(f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict(f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(f"pod {name} has non-empty .spec.schedulingGates")
    after = copy_of(pod)
    after["spec"]["nodeName"] = node
    conditions = [each for each in after["status"].get("conditions", ()) if each["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(now)}
    after["status"]["conditions"] = [*conditions, scheduled]
    return after


# Ends.


def deleted(resource: Resource, each: Object, options: Object, now: float) -> Object | None:
    """The object as it is while it is being deleted; None: it is gone at once."""
    meta = each["metadata"]
    conditions = options.get("preconditions") or {}
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if conditions.get(field) not in (None, meta[field]):
            what = f"Precondition failed: {word} in precondition: {conditions[field]}, in object meta: {meta[field]}"
            raise Refused(
                409, "Conflict", f'Operation cannot be fulfilled on {named(resource)} "{meta["name"]}": {what}'
            )
    grace = _grace(resource, each, options.get("gracePeriodSeconds"))
    finalizers = list(meta.get("finalizers") or ())
    if options.get("propagationPolicy") == "Foreground" and FOREGROUND not in finalizers:
        finalizers.append(FOREGROUND)
    if not grace and not finalizers:
        return None
    after = copy_of(each)
    if finalizers:
        after["metadata"]["finalizers"] = finalizers
    if "deletionTimestamp" in meta and grace >= meta.get("deletionGracePeriodSeconds", 0):
        return after  # it ends no later for being asked again
    after["metadata"].update(deletionTimestamp=stamp(now + grace), deletionGracePeriodSeconds=grace)
    if "deletionTimestamp" not in meta and "generation" in meta:
        after["metadata"]["generation"] += 1
    return after


def _grace(resource: Resource, each: Object, asked: Any) -> int:
    """Only a pod that runs somewhere needs time to end."""
    if resource != PODS or not each["spec"].get("nodeName") or each["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(each["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)


def is_over(each: Object) -> bool:
    """Being deleted, and nothing holds it any longer."""
    meta = each["metadata"]
    is_held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return bool(meta.get("deletionTimestamp")) and not is_held
