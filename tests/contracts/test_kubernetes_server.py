"""What the operator relies on in an API server, tried on the one in memory and on a real one: so the fake stays honest.

The real one is tried where `STERNA_TEST_KUBECONFIG` names an administrator's kubeconfig (`make test-kubernetes`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from sterna.backends.kubernetes.api.resources import DEFINITIONS, EVENTS, LEASES, NODES, SERVICES
from sterna.kinds.resource import PODS, Resource
from tests.contracts.kubernetes_grounds import (
    VARIABLE,
    WIDGETS,
    Ground,
    Object,
    a_pod,
    define,
    direct,
    http,
    real,
    shown,
)

GROUNDS = {"direct": direct, "http": http, "real": real}


@pytest.fixture(params=list(GROUNDS))
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "real" and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no kubeconfig of a real cluster")
    with GROUNDS[request.param]() as made:
        yield made


@pytest.fixture
def widgets(ground: Ground) -> Ground:
    define(ground, WIDGETS)
    return ground


def a_widget(name: str = "w", **meta: object) -> Object:
    return {"metadata": {"name": name, **meta}, "spec": {"size": 1, "list": [1, 2]}}


def version_of(each: Object) -> str:
    return str(each["metadata"]["resourceVersion"])


# Creating and reading.


def test_a_new_object_gets_a_uid_a_version_and_a_time(widgets: Ground) -> None:
    widget = widgets.made(WIDGETS, a_widget())
    meta = widget["metadata"]
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert meta["generation"] == 1
    assert meta["creationTimestamp"].endswith("Z")
    assert shown(widgets.get(WIDGETS, "w"))["metadata"]["uid"] == meta["uid"]


def test_a_name_is_given_once(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    answer = widgets.create(WIDGETS, a_widget())
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert '"w" already exists' in answer.message


def test_missing_object_is_not_found(widgets: Ground) -> None:
    for answer in (
        widgets.get(WIDGETS, "absent"),
        widgets.patch(WIDGETS, "absent", {"spec": {}}),
        widgets.delete(WIDGETS, "absent"),
    ):
        assert (answer.status, answer.reason) == (404, "NotFound")


def test_a_namespace_must_be_there(ground: Ground) -> None:
    answer = ground.ask("POST", PODS.path("nowhere-at-all"), a_pod("p") | {"kind": "Pod", "apiVersion": "v1"})
    assert (answer.status, answer.reason) == (404, "NotFound")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"metadata": {"name": "p"}, "spec": {"containers": []}}, id="no containers"),
        pytest.param({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, id="no image"),
        pytest.param(a_pod("UPPER"), id="no name for a host"),
        pytest.param(a_pod("a" * 300), id="too long a name"),
    ],
)
def test_a_pod_that_cannot_be_is_invalid(ground: Ground, pod: Object) -> None:
    answer = ground.create(PODS, pod)
    assert (answer.status, answer.reason) == (422, "Invalid")


def test_a_new_object_has_no_version_yet(ground: Ground) -> None:
    answer = ground.create(PODS, a_pod("p", metadata={"resourceVersion": "5"}))
    assert (answer.status, answer.reason) == (500, "")
    assert "resourceVersion should not be set" in answer.message


def test_new_pod_is_pending_and_requests_its_limits(ground: Ground) -> None:
    pod = ground.made(PODS, a_pod("p", container={"resources": {"limits": {"cpu": "2"}}}))
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["restartPolicy"] == "Always"


def test_a_status_given_at_creation_is_dropped(widgets: Ground) -> None:
    assert "status" not in widgets.made(WIDGETS, a_widget() | {"status": {"phase": "Done"}})


def test_an_event_is_taken(ground: Ground) -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "sterna.dev/operator",
        "reportingInstance": "a",
        "action": "Start",
        "reason": "Started",
        "type": "Normal",
        "note": "it started",
        "regarding": {"kind": "Pod", "namespace": ground.namespace, "name": "p"},
    }
    assert ground.create(EVENTS, event).status == 201


# Changing.


def test_a_merge_patch_merges_objects_replaces_lists_and_removes_nulls(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget(labels={"a": "1", "b": "2"}))
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"list": [3]}}
    widget = shown(widgets.patch(WIDGETS, "w", patch))
    assert widget["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert widget["spec"] == {"size": 1, "list": [3]}


def test_a_patch_that_changes_nothing_makes_no_version(widgets: Ground) -> None:
    before = widgets.made(WIDGETS, a_widget())
    assert version_of(shown(widgets.patch(WIDGETS, "w", {"spec": {"size": 1}}))) == version_of(before)


def test_generation_counts_changes_of_the_spec(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    assert shown(widgets.patch(WIDGETS, "w", {"metadata": {"labels": {"a": "1"}}}))["metadata"]["generation"] == 1
    assert shown(widgets.patch(WIDGETS, "w", {"spec": {"size": 2}}))["metadata"]["generation"] == 2
    assert shown(widgets.patch(WIDGETS, "w", {"status": {"x": 1}}, "status"))["metadata"]["generation"] == 2


@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_patch_guarded_by_an_old_version_conflicts(widgets: Ground, subresource: str) -> None:
    old = version_of(widgets.made(WIDGETS, a_widget()))
    widgets.patch(WIDGETS, "w", {"spec": {"size": 2}})
    guarded = {"metadata": {"resourceVersion": old}, "spec": {"size": 3}, "status": {"x": 1}}
    answer = widgets.patch(WIDGETS, "w", guarded, subresource)
    assert (answer.status, answer.reason) == (409, "Conflict")


def test_a_status_patch_takes_any_uid(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    answer = widgets.patch(WIDGETS, "w", {"metadata": {"uid": "another"}, "status": {"x": 1}}, "status")
    assert answer.status == 200


def test_another_uid_is_refused(widgets: Ground) -> None:
    widget = widgets.made(WIDGETS, a_widget())
    answer = widgets.patch(WIDGETS, "w", {"metadata": {"uid": "another"}, "spec": {"size": 2}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    widget["metadata"]["uid"] = "another"
    answer = widgets.replace(WIDGETS, widget)
    assert (answer.status, answer.reason) == (409, "Conflict")


def test_a_status_changes_only_where_statuses_do(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    assert "status" not in shown(widgets.patch(WIDGETS, "w", {"status": {"x": 1}}))
    patch = {"metadata": {"annotations": {"a": "1"}, "finalizers": ["a.b/c"]}, "spec": {"size": 9}, "status": {"x": 1}}
    widget = shown(widgets.patch(WIDGETS, "w", patch, "status"))
    assert widget["status"] == {"x": 1}
    assert widget["spec"]["size"] == 1
    assert "annotations" not in widget["metadata"]
    assert "finalizers" not in widget["metadata"]


def test_a_merge_patch_replaces_all_conditions(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    for kind in ("A", "B"):
        widget = shown(widgets.patch(WIDGETS, "w", {"status": {"conditions": [{"type": kind}]}}, "status"))
    assert widget["status"]["conditions"] == [{"type": "B"}]


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        pytest.param([{"op": "test", "path": "/spec/size", "value": 1}], 200, id="as assumed"),
        pytest.param([{"op": "test", "path": "/spec/size", "value": 2}], 422, id="the world has moved"),
        pytest.param([{"op": "remove", "path": "/spec/absent"}], 422, id="nothing to remove"),
        pytest.param([{"op": "replace", "path": "/spec/absent", "value": 1}], 200, id="nothing to replace"),
        pytest.param([{"op": "add", "path": "/spec/list/-", "value": 3}], 200, id="one more in a list"),
        pytest.param({"op": "add"}, 200, id="an object is a merge patch"),
    ],
)
def test_a_json_patch_is_done_whole_or_not_at_all(widgets: Ground, operations: object, status: int) -> None:
    widgets.made(WIDGETS, a_widget())
    change = {"op": "replace", "path": "/spec/size", "value": 5}
    patch = [*operations, change] if isinstance(operations, list) else operations
    answer = widgets.patch(WIDGETS, "w", patch)
    assert answer.status == status, answer
    size = shown(widgets.get(WIDGETS, "w"))["spec"]["size"]
    assert size == (5 if status == 200 and isinstance(patch, list) else 1)


def test_replacement_needs_the_current_version(widgets: Ground) -> None:
    old = widgets.made(WIDGETS, a_widget())
    assert widgets.replace(WIDGETS, old | {"spec": {"size": 2}}).status == 200
    answer = widgets.replace(WIDGETS, old | {"spec": {"size": 3}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    answer = widgets.replace(WIDGETS, a_widget())
    assert (answer.status, answer.reason) == (422, "Invalid")


def test_a_pod_s_spec_is_not_changed(ground: Ground) -> None:
    ground.made(PODS, a_pod("p"))
    answer = ground.patch(PODS, "p", {"spec": {"nodeSelector": {"a": "b"}}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert ground.patch(PODS, "p", {"metadata": {"annotations": {"a": "b"}}}).status == 200


def test_a_pod_is_resized_in_its_own_part_only_and_within_its_node(ground: Ground) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}
    room = {"cpu": "4", "memory": "1Gi", "pods": "9"}
    ground.create(NODES, {"metadata": {"name": "contract-node"}})
    ground.patch(NODES, "contract-node", {"status": {"allocatable": room, "capacity": room}}, "status")
    ground.made(PODS, a_pod("p", node="contract-node", container={"resources": resources}))

    def to(cpus: str) -> list[Object]:
        return [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpus}]

    assert ground.patch(PODS, "p", to("500m")).status == 422
    answer = ground.patch(PODS, "p", to("500m"), "resize")
    assert answer.status == 200, answer
    assert shown(answer)["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    answer = ground.patch(PODS, "p", to("5"), "resize")
    assert (answer.status, answer.reason) == (403, "Forbidden")


# Binding.


def a_binding(pod: str, node: str, **meta: str) -> Object:
    return {
        "metadata": {"name": pod, **meta},
        "target": {"kind": "Node", "name": node},
        "kind": "Binding",
        "apiVersion": "v1",
    }


def test_a_binding_is_answered_with_a_status_and_accepts_any_node(ground: Ground) -> None:
    ground.made(PODS, a_pod("p", schedulerName="sterna"))
    answer = ground.create(PODS, a_binding("p", "a-node-that-is-not-there"), "binding")
    assert (answer.status, shown(answer)["kind"]) == (201, "Status")
    pod = shown(ground.get(PODS, "p"))
    assert pod["spec"]["nodeName"] == "a-node-that-is-not-there"
    assert ["PodScheduled", "True"] in [[each["type"], each["status"]] for each in pod["status"]["conditions"]]


@pytest.mark.parametrize("why", ["bound", "gated", "another uid"])
def test_impossible_binding_conflicts(ground: Ground, why: str) -> None:
    gates = {"schedulingGates": [{"name": "sterna.dev/gate"}]} if why == "gated" else {}
    ground.made(PODS, a_pod("p", node="n" if why == "bound" else "", **gates))
    uid = {"uid": "another"} if why == "another uid" else {}
    answer = ground.create(PODS, a_binding("p", "m", **uid), "binding")
    assert (answer.status, answer.reason) == (409, "Conflict")


def test_a_pod_that_is_not_there_cannot_be_bound(ground: Ground) -> None:
    assert ground.create(PODS, a_binding("absent", "n"), "binding").status == 404


# Deleting.


def test_a_pod_without_a_node_goes_at_once(ground: Ground) -> None:
    uid = ground.made(PODS, a_pod("p"))["metadata"]["uid"]
    answer = ground.delete(PODS, "p")
    assert (answer.status, shown(answer)["metadata"]["uid"]) == (200, uid)
    assert ground.get(PODS, "p").status == 404


def test_a_pod_on_a_node_ends_in_its_time_and_its_name_stays_taken(ground: Ground) -> None:
    ground.made(PODS, a_pod("p", node="n"))
    meta = shown(ground.delete(PODS, "p", gracePeriodSeconds=7))["metadata"]
    assert meta["deletionTimestamp"]
    assert meta["deletionGracePeriodSeconds"] == 7
    answer = ground.create(PODS, a_pod("p"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert "object is being deleted" in answer.message
    again = shown(ground.delete(PODS, "p"))["metadata"]
    assert again["deletionGracePeriodSeconds"] == 7
    ground.delete(PODS, "p", gracePeriodSeconds=0)
    assert ground.get(PODS, "p").status == 404


def test_a_pod_that_has_ended_goes_at_once(ground: Ground) -> None:
    ground.made(PODS, a_pod("p", node="n"))
    assert ground.patch(PODS, "p", {"status": {"phase": "Failed"}}, "status").status == 200
    ground.delete(PODS, "p")
    assert ground.get(PODS, "p").status == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_deletion_may_be_guarded(ground: Ground, field: str) -> None:
    meta = ground.made(PODS, a_pod("p"))["metadata"]
    answer = ground.delete(PODS, "p", preconditions={field: "1" if field == "resourceVersion" else "another"})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert ground.delete(PODS, "p", preconditions={field: meta[field]}).status == 200


def test_a_custom_object_s_deletion_is_answered_with_a_status(widgets: Ground) -> None:
    uid = widgets.made(WIDGETS, a_widget())["metadata"]["uid"]
    status = shown(widgets.delete(WIDGETS, "w"))
    assert (status["kind"], status["status"], status["details"]["uid"]) == ("Status", "Success", uid)


def test_a_service_s_deletion_is_answered_with_the_service(ground: Ground) -> None:
    ground.made(SERVICES, {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    assert shown(ground.delete(SERVICES, "s"))["metadata"]["name"] == "s"


def test_finalizer_keeps_a_deleted_object(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget(finalizers=["sterna.dev/held"]))
    meta = shown(widgets.delete(WIDGETS, "w"))["metadata"]
    assert meta["deletionTimestamp"]
    assert widgets.get(WIDGETS, "w").status == 200
    assert widgets.patch(WIDGETS, "w", {"metadata": {"finalizers": None}}).status == 200
    assert widgets.get(WIDGETS, "w").status == 404


def test_foreground_deletion_waits_for_its_dependents(widgets: Ground) -> None:
    widgets.made(WIDGETS, a_widget())
    meta = shown(widgets.delete(WIDGETS, "w", propagationPolicy="Foreground"))["metadata"]
    assert meta["finalizers"] == ["foregroundDeletion"]


def test_an_eviction_is_a_deletion(ground: Ground) -> None:
    ground.made(PODS, a_pod("p"))
    eviction = {"metadata": {"name": "p"}, "kind": "Eviction", "apiVersion": "policy/v1"}
    assert ground.create(PODS, eviction, "eviction").status == 201
    assert ground.get(PODS, "p").status == 404


# Lists.


def listed(ground: Ground, resource: Resource, query: str = "") -> tuple[list[str], str, Object]:
    answer = ground.ask("GET", resource.path(ground.namespace), query=query)
    page = json.loads(answer.body)
    return [each["metadata"]["name"] for each in page["items"]], page["metadata"].get("continue", ""), page


def test_pages_show_one_instant(widgets: Ground) -> None:
    for name in "abcde":
        widgets.made(WIDGETS, a_widget(name))
    names, token, page = listed(widgets, WIDGETS, "limit=2")
    assert names == ["a", "b"]
    widgets.delete(WIDGETS, "c")
    widgets.made(WIDGETS, a_widget("d2"))
    more, token, next_page = listed(widgets, WIDGETS, f"limit=2&continue={token}")
    assert more == ["c", "d"]
    assert version_of(next_page) == version_of(page)
    assert listed(widgets, WIDGETS, f"limit=2&continue={token}")[:2] == (["e"], "")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("a=1", ["p"]),
        ("a==1", ["p"]),
        ("a!=1", ["q", "r"]),
        ("a", ["p", "q"]),
        ("!a", ["r"]),
        ("a in (1,2)", ["p", "q"]),
        ("a notin (1)", ["q", "r"]),
        ("a,a!=2", ["p"]),
    ],
)
def test_labels_select(ground: Ground, selector: str, expected: list[str]) -> None:
    for name, labels in (("p", {"a": "1"}), ("q", {"a": "2"}), ("r", {})):
        ground.made(PODS, a_pod(name, metadata={"labels": labels}))
    quoted = selector.replace(" ", "%20").replace("=", "%3D").replace("!", "%21")
    assert listed(ground, PODS, f"labelSelector={quoted}")[0] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n", ["p"]),
        ("spec.nodeName=", ["q"]),
        ("metadata.name=q", ["q"]),
        ("spec.nodeName!=n", ["q"]),
        ("status.phase=Pending,spec.nodeName=n", ["p"]),
        ("spec.schedulerName=sterna", ["q"]),
    ],
)
def test_fields_select(ground: Ground, selector: str, expected: list[str]) -> None:
    ground.made(PODS, a_pod("p", node="n"))
    ground.made(PODS, a_pod("q", schedulerName="sterna"))
    assert listed(ground, PODS, f"fieldSelector={selector.replace('=', '%3D').replace('!', '%21')}")[0] == expected


def test_watch_from_an_expired_version_gets_an_error_event(widgets: Ground) -> None:
    answer = widgets.ask("GET", WIDGETS.path(), query="watch=1&resourceVersion=1&timeoutSeconds=1")
    event = json.loads(answer.body.splitlines()[0])
    assert (answer.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)


def test_an_unknown_kind_is_not_found(ground: Ground) -> None:
    answer = ground.ask("GET", "/apis/nobody.sterna.dev/v1/things")
    assert answer.status == 404


def test_a_kind_that_is_defined_is_served(widgets: Ground) -> None:
    assert listed(widgets, WIDGETS)[0] == []
    assert widgets.get(DEFINITIONS, "widgets.contract.sterna.dev").is_done


# Leases.


def test_lease_is_replaced_only_with_its_last_version(ground: Ground) -> None:
    lease = ground.made(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    assert ground.replace(LEASES, lease | {"spec": {"holderIdentity": "b"}}).status == 200
    assert ground.replace(LEASES, lease | {"spec": {"holderIdentity": "c"}}).status == 409
