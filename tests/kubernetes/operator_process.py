"""The operator as a process: started as a user starts it, ended by SIGTERM or SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.kubernetes.control_plane import dying_with_us

ROOT = Path(__file__).resolve().parents[2]
_UNPRICED = (
    "import runpy, sterna.engine.priced_policy as price; price.LOSS_SHARE, price.PAYBACK = float('inf'), 0.0; "
    "runpy.run_module('sterna.cli', run_name='__main__')"
)
"""Jobs of these tests run for seconds, so that no resize would pay: the operator resizes them whatever that costs."""
TICKS = os.sysconf("SC_CLK_TCK")


class OperatorProcess:
    """Running, for as long as its block."""

    def __init__(self, kubeconfig: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        program = [sys.executable, "-c", _UNPRICED, "operator", "--kubeconfig", str(kubeconfig)]
        program += ["--listen", "127.0.0.1:0"]  # several may run on one machine
        handle, name = tempfile.mkstemp(prefix="sterna-operator-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        if "--policy" not in flags:  # minimums in submit order: what these tests expect is easy to foresee
            program += ["--policy", "elastic-fifo"]
        self._program: Sequence[str] = [*program, *flags]
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        self._environment = dict(os.environ, PYTHONPATH=paths, PYTHONUNBUFFERED="1", **(environment or {}))
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*dying_with_us(), *self._program],
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._log.unlink()

    def kill(self) -> None:
        """No last words."""
        self.process.kill()
        self.process.wait()

    def stop(self, patience_seconds: float = 20.0) -> int:
        """As a pod is stopped; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience_seconds)

    def restart(self) -> None:
        """After `kill` or `stop`."""
        self.process = self._started()

    def output(self) -> str:
        """Everything on its standard output and error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def leads(self) -> bool:
        return "Sterna leads as" in self.output()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    @property
    def peak_memory_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
