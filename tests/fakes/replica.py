"""The state of one replica of the operator, set by tests."""

from __future__ import annotations


class FakeReplica:
    """Implements `ReplicaState`."""

    def __init__(self) -> None:
        self.leads, self.leader = True, ""

    def is_leading(self) -> bool:
        return self.leads

    def leader_address(self) -> str:
        return self.leader
