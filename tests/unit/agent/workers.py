"""An elastic job without a scheduler: a membership written by the test, and workers in processes of their own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.agent.scripts import ROOT, environment, lines, until

EXAMPLE = ROOT / "examples" / "numpy_elastic.py"


class ElasticJob:
    """Workers by their index. Ports are taken from the system, as the scheduler does."""

    def __init__(self, folder: Path, steps: int = 10**6, pad_seconds: float = 0.004) -> None:
        self.folder = folder
        self.generation = 0
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._options = ["--steps", str(steps), "--pad-seconds", str(pad_seconds)]
        self._addresses: dict[int, str] = {}

    def want(self, *indices: int) -> int:
        """Replace the membership, as the scheduler does; its generation."""
        self.generation += 1
        members = [
            {"rank": rank, "attempt": 1, "index": index, "address": self._address(index)}
            for rank, index in enumerate(indices)
        ]
        partial = self.folder / "world.partial"
        partial.write_text(json.dumps({"generation": self.generation, "members": members}))
        partial.replace(self.folder / "world.json")
        return self.generation

    def start(self, index: int) -> None:
        env = environment(
            self.place(index),
            STERNA_JOB="elastic",
            STERNA_ATTEMPT="1",
            STERNA_INDEX=str(index),
            STERNA_WORLD=str(self.folder / "world.json"),
            STERNA_CHECKPOINT_DIR=str(self.folder / "checkpoint"),
        )
        with (self.place(index) / "out.log").open("ab") as log:
            command = [sys.executable, str(EXAMPLE), *self._options]
            self.workers[index] = subprocess.Popen(command, env=env, cwd=self.folder, stdout=log, stderr=log)

    def place(self, index: int) -> Path:
        return self.folder / "1" / f"worker-{index}"

    def last(self, index: int) -> dict[str, Any]:
        found = lines(self.place(index))
        return found[-1] if found else {}

    def step(self, index: int) -> int:
        return int(self.last(index).get("step") or 0)

    def trains(self, generation: int, indices: Sequence[int]) -> None:
        """Wait until these workers train together."""

        def is_so() -> bool:
            found = [self.last(index) for index in indices]
            return all(
                each.get("generation") == generation and each["metrics"].get("workers") == len(indices)
                for each in found
            )

        until(is_so, f"generation {generation} with {list(indices)}: {self.said()}")

    def ended(self, index: int) -> int:
        return self.workers[index].wait(30)

    def stop(self, *indices: int) -> None:
        for index in indices:
            self.workers[index].send_signal(signal.SIGTERM)

    def said(self) -> dict[int, str]:
        return {index: (self.place(index) / "out.log").read_text()[-500:] for index in self.workers}

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()

    def _address(self, index: int) -> str:
        if index not in self._addresses:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._addresses[index] = f"127.0.0.1:{free.getsockname()[1]}"
        return self._addresses[index]
