"""Run the demo repeatedly: `python -m tests.bench.demo_runs --runs 10` prints the results of each run as JSON.

`per_cpu` has the times relative to the CPU that other processes left to the jobs, because on a shared machine a phase
with less CPU takes longer under any scheduler. Neither is a test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

ENOUGH = 0.25
"""Target: fraction of the mean that Sterna saves against equal sharing."""


def one_run(seconds: float, repeats: int) -> dict[str, Any]:
    options = ["--json", "--seconds", str(seconds), "--repeats", str(repeats)]
    command = [sys.executable, "-m", "sterna.cli", "demo", *options]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    document = json.loads(output)
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
        "saved": _fraction_saved(means),
        "saved_per_cpu": _fraction_saved(left),
    }


def _fraction_saved(means: dict[str, float]) -> dict[str, float]:
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
