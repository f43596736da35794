"""A minimal study for the tests of `sterna reproduce`: one target holds, one is missed."""

from __future__ import annotations

from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.outcome import Figure, Reproduction, Row


def reproduce(seeds: int, progress: ProgressCallback | None = None) -> Reproduction:
    rows = [
        Row("warm", "mean completion, s", 120.0, 100.0, 90.0, True, "steady"),
        Row("warm", "moves", None, None, 0.25, None),
        Row("cold <b>", "makespan, s", 5000.0, 4000.0, 4321.0, False),
    ]
    for done in (1, 2):
        if progress:
            progress(done, 2)
    bars = {"data": [{"type": "bar", "x": ["warm"], "y": [seeds]}]}
    return Reproduction(
        "tiny", "Does it hold?", rows, ["Take it with salt."], lambda: [Figure("Bars", "One bar.", bars)]
    )
