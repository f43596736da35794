"""The demo, again and again: `python -m tests.bench.demo_runs --runs 10` prints what each run came to, as JSON.

Beside the times as they were it gives them as parts of the CPU that was left to the jobs (`per_cpu`), because on a
machine that others use as well a phase that was given less takes longer, whoever decides. Neither counts as a test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

ENOUGH = 0.25
"""Of the mean that Sterna shall save against equal sharing."""


def one_run(seconds: float, repeats: int) -> dict[str, Any]:
    options = ["--json", "--seconds", str(seconds), "--repeats", str(repeats)]
    command = [sys.executable, "-m", "sterna.cli", "demo", *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    document = json.loads(said)
    phases = {each["phase"]: each for each in document["phases"]}
    means = {key: each["mean_s"] for key, each in phases.items()}
    left = {key: each["mean_s"] * (1 - (each["others"] or 0.0)) for key, each in phases.items()}
    return {
        "mean_s": means,
        "longest_s": {key: each["longest_s"] for key, each in phases.items()},
        "others": {key: each["others"] for key, each in phases.items()},
        "discarded": {key: each["discarded"] for key, each in phases.items() if each["discarded"]},
        "cpu_s": {key: each["cpu_s"] for key, each in phases.items()},
        "moves": phases["sterna"]["moves"],
        "lost_s": phases["sterna"]["lost_s"],
        "control": phases["sterna"]["control"],
        "saved": _saved(means),
        "saved_per_cpu": _saved(left),
    }


def _saved(means: dict[str, float]) -> dict[str, float]:
    return {key: round(1 - means["sterna"] / mean, 4) for key, mean in means.items() if key != "sterna"}


def verdict(runs: list[dict[str, Any]], key: str) -> dict[str, int]:
    return {
        "runs": len(runs),
        "better_than_both": sum(min(run[key].values()) > 0 for run in runs),
        "enough_against_equal": sum(run[key]["equal"] >= ENOUGH for run in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the demo several times.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--repeats", type=int, default=0)
    asked = parser.parse_args()
    runs = []
    for number in range(asked.runs):
        runs.append(one_run(asked.seconds, asked.repeats))
        print(f"{number + 1} of {asked.runs}: {json.dumps(runs[-1])}", file=sys.stderr, flush=True)
    summary = {"as_measured": verdict(runs, "saved"), "per_cpu_left": verdict(runs, "saved_per_cpu")}
    print(json.dumps({"summary": summary, "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
