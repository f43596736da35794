"""The NumPy examples run as a reader would run them: alone, without Sterna installed, stopped in the middle."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.agent.scripts import ROOT, environment, lines, running, until

TRAIN = ROOT / "examples" / "numpy_train.py"
ELASTIC = ROOT / "examples" / "numpy_elastic.py"


def _run(folder: Path, env: dict[str, str], *arguments: str) -> str:
    with running([sys.executable, *arguments], env, folder) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def _weights(path: Path) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_the_training_learns(tmp_path: Path, model: str) -> None:
    _run(tmp_path, environment(tmp_path / "r"), str(TRAIN), "--steps", "300", "--model", model)
    found = lines(tmp_path / "r")
    assert found[-1]["step"] == found[-1]["total"] == 300
    assert found[-1]["metrics"]["loss"] < found[0]["metrics"]["loss"]


def test_the_training_runs_where_sterna_is_not_installed(tmp_path: Path) -> None:
    blocked = (
        "import runpy, sys; sys.modules['sterna'] = None; del sys.argv[0]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    out = _run(tmp_path, environment(None), "-c", blocked, str(TRAIN), "--steps", "50", "--print-every", "50")
    assert out.startswith("step=50/50 loss=")
    assert (tmp_path / "checkpoints" / "numpy_train.npz").exists()


def test_a_training_that_was_stopped_ends_to_the_bit_like_one_that_was_not(tmp_path: Path) -> None:
    steps = "400"
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    env = environment(tmp_path / "r")
    _run(tmp_path, env, str(TRAIN), "--steps", steps, "--checkpoint-dir", str(whole))
    command = [sys.executable, str(TRAIN), "--steps", steps, "--checkpoint-dir", str(parts), "--pad-seconds", "0.02"]
    with running(command, environment(tmp_path / "s"), tmp_path) as process:
        until(lambda: lines(tmp_path / "s"), "the first report")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    step = json.loads((tmp_path / "s" / "saved.json").read_text())["step"]
    assert int(_weights(parts / "numpy_train.npz")["step"]) == step < 400
    out = _run(tmp_path, env, str(TRAIN), "--steps", steps, "--checkpoint-dir", str(parts))
    assert f"resumed at step {step}" in out
    first, second = _weights(whole / "numpy_train.npz"), _weights(parts / "numpy_train.npz")
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_intermediate_checkpoints_are_reported(tmp_path: Path) -> None:
    _run(tmp_path, environment(tmp_path / "r"), str(TRAIN), "--steps", "20", "--save-every", "10")
    assert [line["step"] for line in lines(tmp_path / "r") if line.get("saved")] == [10, 20]
    assert json.loads((tmp_path / "r" / "saved.json").read_text())["step"] == 20


def test_the_elastic_example_runs_alone(tmp_path: Path) -> None:
    out = _run(tmp_path, environment(None), str(ELASTIC), "--steps", "50")
    assert out.splitlines()[-1].startswith("step=50/50 loss=")
    assert int(_weights(tmp_path / "checkpoints" / "numpy_elastic.npz")["step"]) == 50
