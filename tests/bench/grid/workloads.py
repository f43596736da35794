"""Traces of the grid with their nodes and speed-up curves: published ones, and random ones by seed."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from sterna.workloads.generate import Mix, bursty, poisson
from sterna.workloads.load import load_trace
from sterna.workloads.profiles import PROFILES
from sterna.workloads.trace import Trace, make_trace
from tests.bench.inputs import ELASTIC, fair_devices, pools_of

RANDOM = "random-"
"""Prefix of a generated workload; its number follows and is its seed."""
OWN = "own"
"""Curve of a workload whose jobs have models with curves of their own."""
_LONGEST_CURVE = 1024
_CURVE = "grid-curve"


class TraceCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: str
    nodes: str = ""
    percentile: float = 95.0
    jobs: int = 0
    """First jobs that are taken; 0: all."""
    pool: int = 0
    """Rank of the virtual cluster by number of jobs, from 1; 0: the whole trace."""
    profiles: str = ""
    """Folder of the profiles of the trace's own models."""


@dataclass(frozen=True)
class GridWorkload:
    """An elastic trace, its nodes, and the curves that its models name."""

    trace: Trace
    nodes: str
    speedups: dict[str, tuple[float, ...]]


def make_workload(name: str, curve: str, cases: dict[str, TraceCase], data: Path) -> GridWorkload:
    """Make the workload of a cell: the trace, with every job's model set to one that has the curve."""
    if name.startswith(RANDOM):
        return _random_workload(int(name.removeprefix(RANDOM)))
    trace, nodes, own = _load(cases[name], data)
    trace = trace.elastic(*ELASTIC)
    if curve == OWN:
        return GridWorkload(trace, nodes, own)
    model, speedups = _assign_curves(trace, curve)
    category = tuple(f"{category} {each}".strip() for category, each in zip(trace.category, model, strict=True))
    return GridWorkload(replace(trace, model=model, category=category), nodes, speedups)


def curves_of(case: TraceCase | None, curves: list[str]) -> list[str]:
    """Return the curves that a trace is run with: its own, if it has any, else those of the grid."""
    return [OWN] if case is None or case.profiles else curves


@cache
def _load(case: TraceCase, data: Path) -> tuple[Trace, str, dict[str, tuple[float, ...]]]:
    own = _read_profiles(data / case.profiles) if case.profiles else {}
    trace = _read_rubick(data / case.file) if own else load_trace(data / case.file)
    if case.pool:
        trace = pools_of(trace, case.pool)[-1]
    if case.jobs and case.jobs < len(trace):
        trace = trace.take(range(case.jobs))
    return trace, case.nodes or f"{fair_devices(trace, case.percentile) // 8}x8", own


def _assign_curves(trace: Trace, curve: str) -> tuple[tuple[str, ...], dict[str, tuple[float, ...]]]:
    kind, _, number = curve.partition(":")
    if kind == "profiles":
        return _draw_profiles(trace, int(number)), {}
    exponent = float(number or 1)
    counts = range(1, min(int(trace.maximum.max()), _LONGEST_CURVE) + 1)
    return (_CURVE,) * len(trace), {_CURVE: tuple(float(count**exponent) for count in counts)}


def _draw_profiles(trace: Trace, seed: int) -> tuple[str, ...]:
    """Draw for each job one of the profiles that were measured up to its request, or up to the largest count."""
    draw = np.random.default_rng([seed, 14])
    longest = max(map(len, PROFILES.values()))
    fitting = {
        workers: [model for model, curve in PROFILES.items() if len(curve) >= min(workers, longest)]
        for workers in set(trace.workers.tolist())
    }
    picks = draw.random(len(trace)).tolist()
    models = [fitting[workers] for workers in trace.workers.tolist()]
    return tuple(known[int(pick * len(known))] for known, pick in zip(models, picks, strict=True))


def _read_rubick(path: Path) -> Trace:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return make_trace(
        name=[row["name"] for row in rows],
        submit_seconds=[float(row["submission_time"]) for row in rows],
        workers=[float(row["num_gpus"]) for row in rows],
        duration_seconds=[float(row["duration"]) for row in rows],
        model=[f"rubick {row['application']}" for row in rows],
        source=str(path),
        kind="rubick",
    )


def _read_profiles(folder: Path) -> dict[str, tuple[float, ...]]:
    """Read the speed-ups by model: the fastest plan at each number of devices; linear below the fewest measured."""
    curves = {}
    for path in sorted(folder.glob("*.csv")):
        fastest: dict[int, float] = {}
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                devices, seconds = sum(map(int, row["placement"])), float(row["iter_time"])
                fastest[devices] = min(seconds, fastest.get(devices, np.inf))
        counts = sorted(fastest)
        speeds = np.maximum.accumulate([1 / fastest[count] for count in counts])
        whole = np.arange(1, counts[-1] + 1)
        curve = np.interp(whole, [0, *counts], [0.0, *speeds])
        curves[f"rubick {path.stem}"] = tuple((curve / curve[0]).tolist())
    return curves


def _random_workload(seed: int) -> GridWorkload:
    """Draw load, sizes, elasticity, curves, arrivals and cluster of a workload of 200 to 500 jobs."""
    draw = np.random.default_rng([seed, 2026])
    nodes, devices = [("4x8", 32), ("8x8", 64), ("16x8", 128), ("12x4", 48)][draw.integers(4)]
    jobs, load = int(draw.integers(200, 501)), float(draw.uniform(0.5, 1.3))
    most_workers = int(draw.choice([4, 8, 16, 32]))
    sizes = {1 << power: float(draw.uniform(0.2, 1.0)) / (1 << power) for power in range(most_workers.bit_length())}
    models = [{}, dict.fromkeys(PROFILES, 1.0)][draw.integers(2)]
    mix = Mix(
        mean_duration_seconds=float(draw.choice([1800.0, 7200.0, 21600.0])),
        duration_spread=float(draw.uniform(0.8, 2.2)),
        workers=sizes,
        models=models,
        least=float(draw.choice([0.5, 1.0])),
        most=float(draw.choice([2.0, 4.0])),
    )
    make = (poisson, bursty)[draw.integers(2)]
    trace = make(jobs=jobs, seed=seed, mix=mix)
    wanted = float((trace.workers * trace.duration_seconds).sum()) / (load * devices)
    submit = trace.submit_seconds * (wanted / max(float(trace.submit_seconds[-1]), 1.0))
    trace = replace(trace, submit_seconds=submit)
    if models:
        return GridWorkload(trace, nodes, {})
    model, speedups = _assign_curves(trace, ["linear", "power:0.8", "power:0.6"][draw.integers(3)])
    return GridWorkload(replace(trace, model=model, category=model), nodes, speedups)
