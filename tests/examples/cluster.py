"""A cluster in the background for the time of a test, used through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.replicas import Replicas
from tests.examples.frameworks import ROOT

with warnings.catch_warnings():
    # typer reads names that newer versions of click are about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from sterna.cli.connect.cluster import ClusterOptions
    from sterna.service.cluster_service import ClusterService

PATIENCE_SECONDS = 400.0
"""Timeout: frameworks take seconds to import, and minutes on a busy machine."""


class Cluster:
    """Two nodes of one core. Jobs run in the root of the repository, as the examples describe."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._env = os.environ | {"STERNA_STATE": str(state), "PYTHONPATH": str(ROOT / "src")}
        self.sterna("up", "--detach", "--nodes", "2x1cpu", "--listen", "127.0.0.1:0")
        self._service: ClusterService = ClusterOptions(str(state)).connect()

    def sterna(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "sterna.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=self._env, cwd=ROOT, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self._service.job(name))
        return found

    def steps(self, name: str) -> list[int]:
        """Return every reported step, in order."""
        return [report.step for report in self._service.history(name) if report.step is not None]

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self._service.events(name)]

    def output(self, name: str, replica: str = "") -> str:
        return self._service.log(name, replica).text.decode()

    def until(self, name: str, fact: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a condition holds for a job; raise with its log if it has failed."""

        def holds() -> bool:
            job = self.job(name)
            assert job["state"] != "failed", f"{job['reason']}\n{self.output(name)[-2000:]}"
            return fact(job)

        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends_at, f"{self.job(name)}\n{self.output(name)[-2000:]}"
            time.sleep(0.1)  # every poll takes CPU from the training
        return self.job(name)

    def until_completed(self, name: str) -> dict[str, Any]:
        return self.until(name, lambda job: job["state"] == "completed")

    def until_training(self, name: str) -> dict[str, Any]:
        return self.until(name, lambda job: (job["step"] or 0) > 0)

    def close(self) -> None:
        """Delete the jobs first: a cluster that ends leaves running jobs and their control groups behind."""
        names = [job.name for job in self._service.jobs()]
        if names:
            self._service.delete(names)
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while self._service.jobs() and time.monotonic() < ends_at:
            time.sleep(0.1)
        subprocess.run([sys.executable, "-m", "sterna.cli", "down"], capture_output=True, env=self._env, timeout=120)
        replicas = Replicas(self._state)
        replicas.folders = [path for path in self._state.glob("jobs/*/*/*") if (path / "launch.json").exists()]
        replicas.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    try:
        yield made
    finally:
        made.close()


def manifest(path: Path, changes: dict[str, str], into: Path) -> str:
    """Write the manifest of an example with replaced texts, and return its path."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{path.name} does not say {old}"
        text = text.replace(old, new)
    into.write_text(text, encoding="utf-8")
    return str(into)


def named(variables: dict[str, str]) -> list[str]:
    """Return the environment as options of `sterna submit`."""
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]


def as_yaml(variables: dict[str, str]) -> str:
    """Return the environment as variables of a container."""
    return json.dumps([{"name": name, "value": value} for name, value in variables.items()])
