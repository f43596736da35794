"""Quantities and resource usage of pods: exact, rounded up, counted as Kubernetes counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.kinds.objects import PodSpec
from sterna.kinds.parsing.quantities import MOST, count_of, milli_of
from sterna.kinds.parsing.resource_requests import Demand, demand_of

GIB = 1 << 30

COUNTS = [
    ("8Gi", 8 * GIB),
    ("512Mi", 512 << 20),
    ("1.5Ki", 1536),
    ("1k", 1000),
    ("1e3", 1000),
    ("1E3", 1000),
    ("2E", MOST),
    ("1e-3", 1),
    ("128974848", 128974848),
    ("129M", 129_000_000),
    ("123m", 1),
    (".5Gi", GIB // 2),
    ("+5", 5),
    ("-5", -5),
    ("1e999", MOST),
    (0, 0),
    (3, 3),
    (1.5, 2),
]


@pytest.mark.parametrize(("text", "count"), COUNTS)
def test_a_quantity_is_a_whole_number_rounded_up(text: str | int | float, count: int) -> None:
    assert count_of(text) == count


@pytest.mark.parametrize(
    ("text", "milli"), [("500m", 500), ("2", 2000), ("0.1", 100), ("100u", 1), ("0.0005", 1), (0.5, 500), ("1n", 1)]
)
def test_cores_are_counted_in_thousandths(text: str | float, milli: int) -> None:
    """DRAGON-37: rounded up."""
    assert milli_of(text) == milli


@pytest.mark.parametrize("text", ["", " ", ".", "x", "1x", "Gi", "1 Gi", "1e", "1e9999", "0x1", "٣", "9" * 99, "nan"])
def test_what_is_no_quantity_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity such as 2, 500m or 8Gi"):
        count_of(text)


@given(st.text(alphabet="0123456789.eE+-KMGTPinumk ", max_size=12))
def test_no_text_does_anything_else(text: str) -> None:
    try:
        assert abs(milli_of(text)) <= MOST
    except ValueError:
        return


def _spec(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def _container(cpu: str = "", memory: str = "", gpus: int = 0, **more: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


DEMANDS = [
    ("containers add up", _spec(containers=[_container("1", "1Gi"), _container("500m", "1Gi")]), (0, 1500, 2 * GIB)),
    (
        "DRAGON-19: a limit alone is a request",
        _spec(containers=[{"name": "c", "resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}]),
        (0, 4000, 8 * GIB),
    ),
    (
        "a request goes before a limit",
        _spec(containers=[{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]),
        (0, 1000, 0),
    ),
    ("DRAGON-34: devices by their limit", _spec(containers=[_container(gpus=2)]), (2000, 0, 0)),
    ("devices of another make", _spec(containers=[{"resources": {"limits": {"amd.com/gpu": "1"}}}]), (1000, 0, 0)),
    (
        "an init container counts where it needs more",
        _spec(containers=[_container("1", "1Gi")], initContainers=[_container("3"), _container("2", "2Gi")]),
        (0, 3000, 2 * GIB),
    ),
    (
        "a sidecar runs on beside the containers",
        _spec(containers=[_container("1")], initContainers=[_container("500m", restartPolicy="Always")]),
        (0, 1500, 0),
    ),
    (
        "an init container runs beside the sidecars before it",
        _spec(
            containers=[_container("1")],
            initContainers=[_container("500m", restartPolicy="Always"), _container("2")],
        ),
        (0, 2500, 0),
    ),
    ("overhead comes on top", _spec(containers=[_container("1")], overhead={"cpu": "250m"}), (0, 1250, 0)),
    (
        "what the pod says goes before what its containers say",
        _spec(containers=[_container("1", "1Gi")], resources={"requests": {"cpu": "3"}}),
        (0, 3000, GIB),
    ),
    ("nothing asked for, nothing counted", _spec(containers=[{"name": "c"}]), (0, 0, 0)),
]


@pytest.mark.parametrize(("spec", "demand"), [case[1:] for case in DEMANDS], ids=[case[0] for case in DEMANDS])
def test_a_pod_is_counted_as_kubernetes_counts_it(spec: PodSpec, demand: tuple[int, int, int]) -> None:
    assert demand_of(spec) == Demand(*demand)


@pytest.mark.parametrize("amount", ["0.5", "half", "-1"])
def test_a_part_of_a_device_is_no_limit(amount: str) -> None:
    spec = _spec(containers=[{"name": "train", "resources": {"limits": {"nvidia.com/gpu": amount}}}])
    with pytest.raises(ValueError, match="the resources of container 'train'"):
        demand_of(spec)
