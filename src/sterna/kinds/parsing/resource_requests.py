"""Resources that a pod requests of its node, counted as Kubernetes counts them.

Containers add up; an init container counts if it needs more than all that follow it, beside the sidecars that were
started before it; pod-level requests replace those of the containers; overhead comes on top. A limit without a request
is a request; devices are counted by their limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sterna.kinds.objects import Container, Needs, PodSpec
from sterna.kinds.parsing.quantities import count_of, milli_of
from sterna.model.cluster import MILLI

GPUS = ("nvidia.com/gpu", "amd.com/gpu")

Amounts = Mapping[str, str | int | float]


class Demand(NamedTuple):
    """Requests of one pod."""

    devices: int = 0
    """Thousandths."""
    cpus: int = 0
    """Thousandths."""
    memory_bytes: int = 0

    def plus(self, other: Demand) -> Demand:
        return Demand(self.devices + other.devices, self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)

    def most(self, other: Demand) -> Demand:
        """The larger of each."""
        return Demand(
            max(self.devices, other.devices), max(self.cpus, other.cpus), max(self.memory_bytes, other.memory_bytes)
        )


NOTHING = Demand()


def demand_of(spec: PodSpec) -> Demand:
    """Raises `ValueError` with the container whose amounts cannot be read."""
    running = NOTHING
    for container in spec.containers:
        running = running.plus(_of_container(container))
    whole = _with_init(running, spec.init_containers) if spec.init_containers else running
    if spec.resources is not None:
        whole = _as_the_pod_says(whole, spec.resources)
    return whole.plus(_of(spec.overhead, spec.overhead)) if spec.overhead else whole


def limits_of(spec: PodSpec) -> tuple[int, int]:
    """Sum of the containers' limits: thousandths of a core, and bytes; 0 where no container has one."""
    cpus = memory_bytes = 0
    for container in spec.containers:
        limits = container.resources.limits
        if limits:
            cpus += max(0, milli_of(limits.get("cpu", 0)))
            memory_bytes += max(0, count_of(limits.get("memory", 0)))
    return cpus, memory_bytes


def _with_init(running: Demand, containers: Sequence[Container]) -> Demand:
    sidecars, first = NOTHING, NOTHING
    for container in containers:
        need = _of_container(container)
        if container.restart_policy == "Always":
            sidecars = sidecars.plus(need)
            first = first.most(sidecars)
        else:
            first = first.most(sidecars.plus(need))
    return running.plus(sidecars).most(first)


def _of_container(container: Container) -> Demand:
    needs = container.resources
    if not needs.requests and not needs.limits:
        return NOTHING
    try:
        return _of(needs.requests, needs.limits)
    except ValueError as error:
        raise ValueError(f"the resources of container '{container.name}': {error}") from None


def _as_the_pod_says(counted: Demand, needs: Needs) -> Demand:
    """CPU and memory may be asked for by the pod as a whole."""
    said = _of(needs.requests, needs.limits)
    return Demand(counted.devices, said.cpus or counted.cpus, said.memory_bytes or counted.memory_bytes)


def _of(requests: Amounts, limits: Amounts) -> Demand:
    return Demand(
        sum(_devices(limits.get(gpu, requests.get(gpu, 0)), gpu) for gpu in GPUS),
        max(0, milli_of(requests.get("cpu", limits.get("cpu", 0)))),
        max(0, count_of(requests.get("memory", limits.get("memory", 0)))),
    )


def _devices(amount: str | int | float, name: str) -> int:
    devices = milli_of(amount)
    if devices % MILLI or devices < 0:
        raise ValueError(f"'{amount}' is no whole number of {name}")
    return devices
