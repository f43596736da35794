"""`/healthz` and `/readyz` report what the cluster's checks return."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.control.health import HealthStatus
from tests.fakes.http_server import served


class Checks:
    def __init__(self, status: HealthStatus) -> None:
        self._status = status

    def check_live(self) -> HealthStatus:
        return self._status

    def check_ready(self) -> HealthStatus:
        return self._status


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize(
    ("status", "code"), [(HealthStatus(True, "ok"), 200), (HealthStatus(False, "The loop hangs."), 503)]
)
def test_failed_check_is_a_503_with_a_sentence(tmp_path: Path, path: str, status: HealthStatus, code: int) -> None:
    with served(tmp_path, health=Checks(status)) as cluster:
        reply = cluster.ask("GET", path)
    assert (reply.status, reply.text) == (code, status.sentence)


def test_probes_need_no_token(tmp_path: Path) -> None:
    with served(tmp_path, health=Checks(HealthStatus(True, "ok")), listen="0.0.0.0:0") as cluster:
        assert cluster.ask("GET", "/healthz").status == 200
        assert cluster.ask("GET", "/api/v1/jobs").status in (401, 403)
