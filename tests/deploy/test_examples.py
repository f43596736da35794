"""The examples for an installation: each is well formed and agrees with its documentation page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from sterna.kinds.labels import JOB_LABEL
from tests.deploy import chart
from tests.deploy.hcl import Block, blocks_of

EXAMPLES = chart.DEPLOY / "examples"
GKE = EXAMPLES / "gke"
TERRAFORM_FILES = sorted(GKE.glob("*.tf"))


def _objects(name: str) -> dict[chart.Name, chart.Object]:
    return chart.objects_in((EXAMPLES / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_is_a_list_of_objects(file: Path) -> None:
    assert all({"apiVersion", "kind", "metadata"} <= each.keys() for each in yaml.safe_load_all(file.read_text()))


def test_specon_s_volume_is_bound_to_its_claim_and_never_erased() -> None:
    """DRAGON-95: names as SpeCon's jobs have them."""
    objects = _objects("specon-volumes.yaml")
    volume = objects[chart.Name("PersistentVolume", "", "pv1-nfs")]["spec"]
    claim = objects[chart.Name("PersistentVolumeClaim", "default", "pvc1-nfs")]["spec"]
    assert volume["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["accessModes"] == claim["accessModes"] == ["ReadWriteMany"]
    assert (claim["volumeName"], volume["claimRef"]["name"]) == ("pv1-nfs", "pvc1-nfs")
    assert volume["storageClassName"] == claim["storageClassName"] == ""


def test_specon_s_job_differs_from_any_other_pod_by_a_label() -> None:
    """DRAGON-80, DRAGON-90."""
    pod = _objects("specon-job.yaml")[chart.Name("Pod", "default", "job1")]
    assert pod["metadata"]["labels"] == {JOB_LABEL: "job1"}
    assert "schedulerName" not in pod["spec"]


def test_the_old_endpoint_of_container_migration_leads_to_the_operator() -> None:
    """DRAGON-68."""
    service = _objects("container-migration-endpoint.yaml")[chart.Name("Service", "kube-system", "server-endpoint")]
    assert service["spec"]["externalName"] == f"sterna-operator.{chart.NAMESPACE}.svc.cluster.local"


# Terraform.


def _blocks() -> list[Block]:
    return [block for file in TERRAFORM_FILES for block in blocks_of(file.read_text(encoding="utf-8"))]


def test_the_gke_example_is_the_cluster_of_container_migration_s_evaluation() -> None:
    found = {(block.kind, *block.labels): block for block in _blocks()}
    defaults = {block.labels[0]: block.attributes.get("default", "") for block in _blocks() if block.kind == "variable"}
    pool = found["resource", "google_container_node_pool", "workers"]
    assert (pool.attributes["node_count"], defaults["nodes"]) == ("var.nodes", "3")
    assert pool.block("node_config").attributes["machine_type"] == "var.machine_type"
    assert defaults["machine_type"] == "e2-standard-4"


def test_every_variable_of_the_gke_example_is_used_and_described() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in TERRAFORM_FILES)
    variables = [block for block in _blocks() if block.kind == "variable"]
    assert [block.labels[0] for block in variables if f"var.{block.labels[0]}" not in text] == []
    assert all(block.attributes["description"].endswith(".") for block in variables)


@pytest.mark.parametrize(
    "text", ['a "b" {', "a = 1", "a { b = [1, 2 }", "a { b c }", "a { } }", "a { 'b' = 1 }", "a { = 1 }"]
)
def test_what_is_not_well_formed_is_noticed(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        blocks_of(text)


@pytest.mark.slow
def test_terraform_reads_the_gke_example_and_would_write_it_alike() -> None:
    terraform = shutil.which("terraform")
    if terraform is None:
        pytest.skip("Terraform is not installed; the example was only read by our own small parser")
    command = [terraform, "fmt", "-check", "-diff", str(GKE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
