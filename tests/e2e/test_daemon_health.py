"""Health endpoints of a real daemon."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from sterna.apps.daemon import Daemon, Options


def get(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{daemon.url}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_daemon_is_healthy_while_its_loop_finishes_rounds(tmp_path: Path) -> None:
    with Daemon(Options(tmp_path, "1x1cpu", listen="127.0.0.1:0")) as daemon:
        assert get(daemon, "/readyz") == (200, "ok")
        assert get(daemon, "/healthz") == (200, "ok")
        daemon.watchdog.stall_seconds = 0.0
        status, sentence = get(daemon, "/healthz")
    assert status == 503
    assert sentence.startswith("The scheduling loop has not finished a round for")
