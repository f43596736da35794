"""The twelve jobs of the demo: model, length, convergence and order of each.

Lengths are in CPU seconds and converted to steps by the measured cost of a step, so that the demo takes as long on a
fast machine as on a slow one. The order favours no policy: under FIFO its mean is that of all orders.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.errors import UserError
from sterna.model.job import JobSpec, ReplicaSpec

TRAINING = (sys.executable, "-P", "-m", "sterna.experiments.demo.training")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of every job in every phase, so that phases differ only in the division of cores."""

_MEASURE_LIMIT_SECONDS = 60.0
_FEWEST_STEPS = 20
_FASTEST_RATE = 0.02
_GRACE_SECONDS = 1.0


@dataclass(frozen=True)
class Trainee:
    """A job of the demo, independent of the machine."""

    name: str
    length: float
    """CPU time relative to the other jobs."""
    eagerness: float
    """Learning rate times steps; a job with a higher value converges after a smaller fraction of its steps."""

    @property
    def model(self) -> str:
        return self.name.partition("-")[0]


MIX = (
    Trainee("conv-1", 11.0, 1.5),
    Trainee("softmax-1", 1.6, 3.0),
    Trainee("coder-1", 1.3, 4.0),
    Trainee("mlp-1", 3.0, 6.0),
    Trainee("mlp-2", 6.0, 1.0),
    Trainee("rnn-1", 9.0, 6.0),
    Trainee("softmax-2", 4.0, 8.0),
    Trainee("conv-2", 2.0, 3.0),
    Trainee("mlp-3", 2.5, 2.0),
    Trainee("softmax-3", 1.0, 1.0),
    Trainee("rnn-2", 5.0, 12.0),
    Trainee("coder-2", 7.5, 10.0),
)


@dataclass(frozen=True)
class TrainingTask:
    """A job of the demo with its steps on this machine."""

    trainee: Trainee
    steps: int
    cpu_seconds: float

    @property
    def name(self) -> str:
        return self.trainee.name

    def spec(self, cpus: int, working_dir: str) -> JobSpec:
        """Return the job to submit; `cpus` in thousandths of a core, 0 on shared nodes."""
        rate = min(self.trainee.eagerness / self.steps, _FASTEST_RATE)
        options = {"model": self.trainee.model, "steps": self.steps, "rate": f"{rate:.3g}", "seed": len(self.name)}
        command = (*TRAINING, *(text for name, value in options.items() for text in (f"--{name}", str(value))))
        worker = ReplicaSpec("worker", 1, command, tuple(ONE_THREAD.items()), working_dir, cpus=cpus)
        return JobSpec(self.name, "TrainingJob", (worker,), 1, 1, 1, grace_seconds=_GRACE_SECONDS)


def make_tasks(step_seconds: Mapping[str, float], cpu_seconds: float) -> list[TrainingTask]:
    """Scale all jobs to a total of `cpu_seconds`."""
    whole = sum(each.length for each in MIX)
    found = []
    for each in MIX:
        used = cpu_seconds * each.length / whole
        found.append(TrainingTask(each, max(_FEWEST_STEPS, round(used / step_seconds[each.model])), used))
    return found


def measure_step_seconds(environment: Mapping[str, str], cores: int) -> dict[str, float]:
    """Measure the CPU seconds of a step by model, with all cores of the demo busy."""
    command = [*TRAINING, "--measure"]
    running = [
        subprocess.Popen(command, env=dict(environment) | ONE_THREAD, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(cores)
    ]
    try:
        return mean_by_model([_read_measurement(process) for process in running])
    finally:
        for process in running:
            process.kill()
            process.communicate()


def mean_by_model(measurements: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {model: math.fsum(each[model] for each in measurements) / len(measurements) for model in measurements[0]}


def _read_measurement(process: subprocess.Popen[bytes]) -> dict[str, float]:
    try:
        output, errors = process.communicate(timeout=_MEASURE_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"A training step could not be measured within {_MEASURE_LIMIT_SECONDS:.0f} s; this machine is too busy "
            "for the demo, try again when it is quieter."
        ) from None
    if process.returncode != 0:
        last = (errors.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"The demo's training does not run here ({last}); check the installation of NumPy.")
    answer: dict[str, float] = json.loads(output)
    return answer
