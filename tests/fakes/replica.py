"""The state of one replica of the operator, set by tests."""

from __future__ import annotations

from sterna.control.health import HealthStatus


class FakeReplica:
    """Implements `ReplicaState`."""

    def __init__(self) -> None:
        self.leads, self.leader = True, ""
        self.live = self.ready = HealthStatus(True, "ok")

    def is_leading(self) -> bool:
        return self.leads

    def leader_address(self) -> str:
        return self.leader

    def check_live(self) -> HealthStatus:
        return self.live

    def check_ready(self) -> HealthStatus:
        return self.ready
