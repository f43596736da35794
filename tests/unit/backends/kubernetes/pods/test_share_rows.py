"""Rows of SharePods, ours and foreign (DRAGON-36 to 41)."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.pods.share_rows import placing_patch, share_row
from sterna.kinds.parsed_job import GpuFraction
from tests.unit.kinds.kind_builders import job_object

SHARE = {"kubeshare/gpu_request": "0.3334", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1073741824"}


def a_share(annotations: dict[str, str], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": "s", "annotations": annotations},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }


def test_a_share_is_rounded_up_to_thousandths() -> None:
    """DRAGON-37."""
    row = share_row(job_object(a_share({**SHARE, "kubeshare/GPUID": "abcde"}, nodeName="a")))
    assert row.gpu_fraction == GpuFraction(334, 1000, 1 << 30)
    assert (row.node, row.gpu_id) == ("a", "abcde")
    assert (row.cpus, row.memory_bytes) == (1000, 1 << 30)


@pytest.mark.parametrize(("phase", "is_terminated"), [("Running", False), ("Succeeded", True), ("Failed", True)])
def test_one_that_has_ended_holds_nothing(phase: str, is_terminated: bool) -> None:
    row = share_row(job_object(a_share(SHARE, {"PodStatus": {"phase": phase}}, nodeName="a")))
    assert row.is_terminated is is_terminated


@pytest.mark.parametrize(
    "annotations",
    [{"kubeshare/gpu_request": "much"}, {**SHARE, "kubeshare/gpu_mem": "3G"}, {**SHARE, "kubeshare/gpu_request": "2"}],
)
def test_an_unreadable_share_pod_affects_no_other(annotations: dict[str, str]) -> None:
    """DRAGON-39."""
    row = share_row(job_object(a_share(annotations, nodeName="a")))
    assert row.gpu_fraction is None
    assert row.cpus == 1000


def test_an_urgent_share_pod_is_recognized_and_can_be_placed() -> None:
    """DRAGON-40."""
    row = share_row(job_object(a_share({**SHARE, "lsalab.nthu/priority": "high"})))
    assert row.is_urgent
    assert row.node == ""
    assert placing_patch("a", "abcde", "7") == {
        "metadata": {"resourceVersion": "7", "annotations": {"kubeshare/GPUID": "abcde"}},
        "spec": {"nodeName": "a"},
    }
