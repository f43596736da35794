"""Typed decode targets of Kubernetes objects.

Only fields that are used are declared; msgspec skips the rest while decoding, which makes a hundred thousand pods
affordable. Custom resources keep `spec` and `status` raw for the parser of their kind.
"""

from __future__ import annotations

import msgspec

from sterna.kinds.objects import Condition, Meta


class Taint(msgspec.Struct, rename="camel", gc=False, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, rename="camel"):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(msgspec.Struct, rename="camel"):
    allocatable: dict[str, str | int | float] = {}
    capacity: dict[str, str | int | float] = {}
    conditions: list[Condition] = []


class Node(msgspec.Struct, rename="camel"):
    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class PriorityClass(msgspec.Struct):
    metadata: Meta
    value: int = 0


class Plain(msgspec.Struct, rename="camel"):
    """Object of which only the metadata is used: a headless service."""

    metadata: Meta


class ConfigMap(msgspec.Struct):
    """ConfigMap with data of the operator."""

    metadata: Meta
    data: dict[str, str] = {}
