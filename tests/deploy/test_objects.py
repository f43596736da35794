"""Facts about the installed objects that a reviewer of `deploy/sterna.yaml` checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sterna.backends.kubernetes.api.rbac import FENCE, WRITES, all_uses
from sterna.settings import MONITOR_PORT, OPERATOR_PORT
from tests.deploy import chart
from tests.deploy.chart import Name, Object

OBJECTS = chart.objects_of_one_file()
SYSTEM = chart.NAMESPACE


def _pod(kind: str, name: str) -> Object:
    template: Object = OBJECTS[Name(kind, SYSTEM, name)]["spec"]["template"]["spec"]
    return template


OPERATOR = _pod("Deployment", "sterna-operator")
MONITOR = _pod("DaemonSet", "sterna-monitor")


def test_two_replicas_of_the_operator_run_and_one_survives_a_drain() -> None:
    assert OBJECTS[Name("Deployment", SYSTEM, "sterna-operator")]["spec"]["replicas"] == 2
    assert OBJECTS[Name("PodDisruptionBudget", SYSTEM, "sterna-operator")]["spec"]["maxUnavailable"] == 1


def test_the_operator_runs_as_non_root_with_a_read_only_file_system() -> None:
    assert OPERATOR["securityContext"]["runAsNonRoot"] is True
    assert OPERATOR["securityContext"]["runAsUser"] > 0
    security = OPERATOR["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not [volume for volume in OPERATOR["volumes"] if "hostPath" in volume]


def test_the_monitor_reads_its_node_and_changes_nothing_there() -> None:
    container = MONITOR["containers"][0]
    on_node = {volume["name"]: volume["hostPath"]["path"] for volume in MONITOR["volumes"] if "hostPath" in volume}
    assert sorted(on_node.values()) == ["/var/lib/kubelet/pods", "/var/log/pods"]
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] in on_node]
    assert len(mounts) == len(on_node)
    assert all(mount["readOnly"] and mount["mountPath"] == on_node[mount["name"]] for mount in mounts)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "hostNetwork" not in MONITOR


def test_a_monitor_is_on_every_node_whatever_its_taints() -> None:
    assert MONITOR["tolerations"] == [{"operator": "Exists"}]


def test_jobs_find_the_monitor_and_the_operator_where_container_migration_had_them() -> None:
    """DRAGON-60, DRAGON-68."""
    assert MONITOR["containers"][0]["ports"][0]["hostPort"] == MONITOR_PORT
    service = OBJECTS[Name("Service", SYSTEM, "sterna-operator")]["spec"]
    assert service["ports"][0]["port"] == OPERATOR_PORT


def test_components_tolerate_the_taint_of_voda() -> None:
    """VODA-106."""
    assert {"key": "vodascheduler/hostname", "operator": "Exists"} in OPERATOR["tolerations"]


@pytest.mark.parametrize("pod", [OPERATOR, MONITOR], ids=["operator", "monitor"])
def test_every_container_is_probed_and_has_requests_and_a_limit_of_memory(pod: Object) -> None:
    container = pod["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


def test_operator_is_ready_when_its_cache_is_synced() -> None:
    assert OPERATOR["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_selectors_find_the_pods_that_they_are_meant_for() -> None:
    templates = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in _workloads()}
    for name, each in OBJECTS.items():
        selector = _selector(each)
        if selector is not None:
            found = [other.name for other, labels in templates.items() if selector.items() <= labels.items()]
            assert found == [name.name]


def _workloads() -> Iterator[tuple[Name, Object]]:
    return ((name, each) for name, each in OBJECTS.items() if name.kind in ("Deployment", "DaemonSet"))


def _selector(each: Object) -> dict[str, str] | None:
    spec = each.get("spec", {})
    if each["kind"] == "Service":
        return dict(spec["selector"])
    found = spec.get("podSelector" if each["kind"] == "NetworkPolicy" else "selector")
    return dict(found["matchLabels"]) if found else None


# The fence.


def _fence() -> tuple[Object, Object]:
    return (
        OBJECTS[Name("ValidatingAdmissionPolicy", "", FENCE)]["spec"],
        OBJECTS[Name("ValidatingAdmissionPolicyBinding", "", FENCE)]["spec"],
    )


def test_every_write_that_the_operator_may_do_meets_the_fence() -> None:
    policy, _ = _fence()
    operations = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
    stopped = {
        (group, resource, operation)
        for rule in policy["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    role = OBJECTS[Name("ClusterRole", "", "sterna-operator")]
    free = {("authentication.k8s.io", "tokenreviews")}
    for rule in role["rules"]:
        for group, resource in ((group, each) for group in rule["apiGroups"] for each in rule["resources"]):
            for verb in set(rule["verbs"]) & WRITES if (group, resource) not in free else ():
                assert (group, resource, operations[verb]) in stopped


def test_the_fence_excludes_the_lease_so_that_it_can_be_acquired() -> None:
    policy, _ = _fence()
    groups = {group for rule in policy["matchConstraints"]["resourceRules"] for group in rule["apiGroups"]}
    assert "coordination.k8s.io" not in groups
    assert "*" not in groups


def test_the_fence_matches_requests_of_the_operator_only() -> None:
    policy, binding = _fence()
    assert [each["expression"] for each in policy["matchConditions"]] == [
        'request.userInfo.username == "system:serviceaccount:sterna-system:sterna-operator"'
    ]
    assert binding["validationActions"] == ["Deny"]


def test_a_missing_lease_rejects_no_request() -> None:
    """The server looks it up before it matches the user: else no client could create a pod until it exists."""
    policy, binding = _fence()
    assert policy["failurePolicy"] == "Ignore"
    assert binding["paramRef"]["parameterNotFoundAction"] == "Allow"
    assert (binding["paramRef"]["namespace"], binding["paramRef"]["name"]) == (SYSTEM, "sterna-operator")


def test_the_operator_s_name_in_the_lease_is_that_of_its_pod() -> None:
    """The fence compares it with the pod that the server read from the operator's token."""
    container = OPERATOR["containers"][0]
    assert "--identity=$(POD_NAME)" in container["args"]
    names = {each["name"]: each for each in container["env"]}
    assert names["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


# The chart's switches.

FENCES = {("ValidatingAdmissionPolicy", FENCE), ("ValidatingAdmissionPolicyBinding", FENCE)}


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("install.fence", FENCES),
        ("operator.leaderElection", FENCES),
        ("install.disruptionBudget", {("PodDisruptionBudget", "sterna-operator")}),
        ("install.networkPolicy", {("NetworkPolicy", "sterna-operator"), ("NetworkPolicy", "sterna-monitor")}),
        ("install.userRoles", {("ClusterRole", "sterna-edit-jobs"), ("ClusterRole", "sterna-view-jobs")}),
    ],
)
def test_a_part_that_is_switched_off_is_not_installed(switch: str, gone: set[tuple[str, str]]) -> None:
    values = chart.changed(chart.default_values(), switch, False)
    left = chart.objects_of_chart(values)
    assert {(name.kind, name.name) for name in chart.objects_of_chart() if name not in left} == gone


def test_without_the_monitor_nothing_of_it_is_left() -> None:
    values = chart.changed(chart.default_values(), "monitor.enabled", False)
    assert not [name for name in chart.objects_of_chart(values) if "monitor" in name.name]


def test_where_kubeflow_has_its_definition_ours_is_left_out() -> None:
    values = chart.changed(chart.default_values(), "definitions.tfJobs", False)
    assert Name("CustomResourceDefinition", "", "tfjobs.kubeflow.org") not in chart.objects_of_chart(values)


def test_another_namespace_reaches_every_object_and_the_fence() -> None:
    objects = chart.objects_of_chart(namespace="elsewhere")
    assert {name.namespace for name in objects} == {"", "elsewhere"}
    assert SYSTEM not in str(objects)


def test_another_name_of_the_lease_reaches_roles_and_fence() -> None:
    values = chart.changed(chart.default_values(), "operator.lease.name", "other")
    objects = chart.objects_of_chart(values)
    assert objects[Name("ValidatingAdmissionPolicyBinding", "", FENCE)]["spec"]["paramRef"]["name"] == "other"
    for who in ("sterna-operator", "sterna-monitor"):
        rules: list[dict[str, Any]] = objects[Name("Role", SYSTEM, who)]["rules"]
        assert ["other"] in [rule.get("resourceNames") for rule in rules]


@pytest.mark.parametrize("secrets", [[], [{"name": "login"}]])
def test_secrets_of_a_registry_reach_both_accounts(secrets: list[dict[str, str]]) -> None:
    objects = chart.objects_of_chart(chart.changed(chart.default_values(), "image.pullSecrets", secrets))
    found = [each.get("imagePullSecrets", []) for name, each in objects.items() if name.kind == "ServiceAccount"]
    assert found == [secrets, secrets]


def test_the_table_of_uses_has_a_reason_for_each_entry() -> None:
    assert [use for use in all_uses() if len(use.why) < 10] == []
