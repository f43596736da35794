"""Kubernetes objects that only the operator reads, decoded as far as they decide something: nodes, records."""

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
    """An object of which nothing but its existence counts: a headless service."""

    metadata: Meta


class Record(msgspec.Struct):
    """A ConfigMap in which we write something down."""

    metadata: Meta
    data: dict[str, str] = {}
