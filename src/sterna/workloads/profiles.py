"""Speed-up curves of well-known models, for traces that name a model and bring no curve of their own.

Each entry is a published measurement: workers and their speed-up over one worker, interpolated linearly between
measured counts. Curves that were not monotone and concave (noise, a slow link) were fitted by isotonic regression of
their gains, weighted by the number of workers they span; counts inside a levelled stretch are not listed. Voda's four
are as published. There is no extrapolation beyond the largest measured count.

`DRAWN` lists the profiles that `speedup_assumption` draws from for jobs without a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# heyfey/vodascheduler (Apache-2.0): 1..4 GPUs of one kind, as its authors profiled them for their 24-job experiment.
_VODA: dict[str, dict[int, float]] = {
    "vgg16": {1: 1, 2: 1.785, 3: 2.5, 4: 3.125},
    "resnet50": {1: 1, 2: 1.857, 3: 2.6, 4: 3.25},
    "inceptionv3": {1: 1, 2: 1.842, 3: 2.692, 4: 3.5},
    "transformer": {1: 1, 2: 1.657, 3: 2.148, 4: 2.521},
}

# Measured for ElasticFlow (pkusys/ElasticFlow, ASPLOS'23): iterations per second at 1, 2, 4 .. 64 GPUs
# over those at one, at the largest batch.
_ELASTICFLOW_A100: dict[str, dict[int, float]] = {
    "bert": {1: 1, 2: 1.589, 4: 2.364, 8: 2.796, 16: 3.012, 64: 3.012},
    "gpt2": {1: 1, 2: 1.699, 4: 2.792, 8: 3.821, 16: 4.362, 32: 4.602, 64: 4.602},
    "deepspeech2": {1: 1, 2: 1.851, 4: 3.283, 8: 4.629, 16: 5.876, 32: 7.803, 64: 8.734},
    "inception3": {1: 1, 2: 1.818, 4: 3.046, 8: 4.236, 16: 4.994, 32: 5.012, 64: 5.012},
    "resnet50_cifar10": {1: 1, 2: 1.223, 4: 1.3, 8: 1.3},
}
_ELASTICFLOW_T4: dict[str, dict[int, float]] = {
    "yolov3": {1: 1, 2: 1.892, 4: 3.002, 16: 3.002},
    "cifar10": {1: 1, 4: 3.553, 16: 12.558, 64: 12.558},
    "imagenet": {1: 1, 2: 1.983, 8: 7.305, 16: 14.16, 32: 26.998, 64: 37.512},
    "ncf": {1: 1, 4: 1.201, 64: 1.201},
}

# AlibabaPAI/reconfigurable-dl-scheduler (Rubick, MLSys'25; Apache-2.0), A800, fixed global batch: time of an iteration
# with the fastest execution plan at each number of GPUs. A count at which more GPUs were slower than fewer is not
# listed. From 1 to 8 GPUs llama7 was measured with its state in host memory, a tenth as fast per GPU as on 16, and
# llama30 was not measured below 24; both curves are linear up to the count with the highest speed per GPU.
_RUBICK: dict[str, dict[int, float]] = {
    "bert_a800": {1: 1, 2: 1.799, 4: 2.912, 8: 4.24},
    "gpt2_a800": {1: 1, 2: 1.975, 4: 3.777, 8: 6.821},
    "roberta": {1: 1, 8: 3.137},
    "t5": {1: 1, 2: 1.825, 4: 3.226, 8: 4.481},
    "vit": {1: 1, 2: 1.707, 4: 2.309, 8: 2.945},
    "llama7": {1: 1, 16: 16, 64: 26.886},
    "llama30": {1: 1, 32: 32, 48: 39.543, 64: 43.758},
}


def _interpolate(measured: Mapping[int, float]) -> tuple[float, ...]:
    counts = list(measured)
    return tuple(np.interp(range(1, counts[-1] + 1), counts, list(measured.values())).tolist())


_ELASTICFLOW = _ELASTICFLOW_A100 | _ELASTICFLOW_T4

PROFILES: dict[str, tuple[float, ...]] = {
    model: _interpolate(measured) for model, measured in (_VODA | _ELASTICFLOW | _RUBICK).items()
}
"""Speed-ups at 1, 2, 3 .. workers by model."""

GENERATED: tuple[str, ...] = (*_VODA, *_ELASTICFLOW)
"""Models of generated traces by default: a fixed list, so that a seed gives the same trace in every release."""


class RequestRange(NamedTuple):
    """Fewest and most workers requested by a job that may be of a model."""

    fewest: int
    most: int


_FEWEST = {"llama7": 16, "llama30": 24}
"""Smallest measured count with the model in GPU memory, where that is not 1."""


def _requests(model: str, speedups: tuple[float, ...]) -> RequestRange:
    """Return the requests at which the model still gains, and whose double was measured unless it gains no more."""
    peak = int(np.argmax(speedups)) + 1
    return RequestRange(_FEWEST.get(model, 1), peak if peak < len(speedups) else peak // 2)


DRAWN: dict[str, RequestRange] = {model: _requests(model, PROFILES[model]) for model in sorted(_ELASTICFLOW | _RUBICK)}
"""Profiles that stand for an unknown model, by the requests that they may stand for. Voda's are left out: they end at 4
workers, below what most traces request."""


def model_key(model: str) -> str:
    """Normalize the spelling of a model: `ResNet-50` and `resnet_50` have the same key."""
    return model.strip().lower().translate(_SEPARATORS)


def curve_of(model: str, own: Mapping[str, tuple[float, ...]] | None = None) -> tuple[float, ...] | None:
    """Look up the curve of a model in any spelling, in the user's `own` curves first; None if it was not measured."""
    key = model_key(model)
    for name, curve in (own or {}).items():
        if model_key(name) == key:
            return curve
    return _BY_KEY.get(key)


_SEPARATORS = str.maketrans("", "", "-_ ")
_BY_KEY = {model_key(model): curve for model, curve in PROFILES.items()}
