"""Names of columns and keys in training output, and the roles they have: step, total, time, metric.

One vocabulary for stdout, CSV and TensorBoard. It knows names, not formats.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

STEPS = ("global_step", "current_step", "step", "steps", "num_iteration", "iteration", "iterations", "iter", "batch")
"""Best first."""
TOTALS = ("total", "total_steps", "max_steps", "num_steps", "total_iteration", "total_iterations", "max_iter")
EPOCHS = ("total_epochs", "num_epochs", "max_epochs", "num_train_epochs", "epochs")
TIMES = ("t", "time", "timestamp", "wall_time", "ts")

_RISING = ("acc", "accuracy", "auc", "f1", "bleu", "rouge", "map", "iou", "precision", "recall", "top1", "top5", "psnr")
_RISING_TOO = ("reward", "return", "score", "dice", "r2", "ssim", "elbo")
_FALLING = ("loss", "err", "error", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer", "nll", "fid", "kl", "bpb")
QUALITIES = (*_RISING, *_RISING_TOO, *_FALLING)
"""Names of measures of quality."""
_QUALITY = re.compile(rf"(?:^|[^a-z])(?:{'|'.join(QUALITIES)})(?:$|[^a-z])|loss$|accuracy$|error$")
_IS_RISING = re.compile(rf"(?:^|[^a-z])(?:{'|'.join((*_RISING, *_RISING_TOO))})(?:$|[^a-z])|accuracy$")
_VALIDATION = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|test)(?:$|[^a-z])")

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)"


class ProgressRow(NamedTuple):
    """Progress in one line or row."""

    step: int | None
    total: int | None
    metrics: dict[str, float | None]
    """None: the value is not finite."""
    at: float | None = None


@functools.lru_cache(1024)
def is_quality(name: str) -> bool:
    """True for names of measures of quality."""
    return bool(_QUALITY.search(name.lower()))


def is_rising(name: str) -> bool:
    """True if a better model has a higher value. Unknown names fall, as a loss does."""
    return bool(_IS_RISING.search(name.lower()))


def main_metric(names: Iterable[str], wanted: str = "") -> str:
    """The metric to judge by: the one asked for (or one that ends in it), else a loss, else another measure of quality,
    else the first; training data before validation data, which is reported rarely. Empty: there is none."""
    listed = list(names)
    if wanted:
        low = wanted.lower()
        exact = [name for name in listed if name.lower() == low]
        return next(iter(exact or [name for name in listed if re.split(r"[/.]", name.lower())[-1] == low]), "")

    def rank(name: str) -> tuple[bool, bool, bool]:
        low = name.lower()
        return "loss" not in low, not is_quality(low), bool(_VALIDATION.search(low))

    counting = [name for name in listed if name.lower() not in _BESIDE]
    return min(counting, key=rank, default="")


_BESIDE = frozenset({"epoch", "lr", "learning_rate", "workers", "cpu", "v_num", "grad_norm", "images/sec"})
"""Numbers that are no metric to judge by."""


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def number(text: str) -> float:
    """Parse a number; NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def classify_values(values: Mapping[str, float]) -> ProgressRow:
    """Distinguish steps, totals and time from metrics by their names."""
    metrics: dict[str, float | None] = {}
    best: dict[str, tuple[int, float]] = {}
    for name, value in values.items():
        role, rank = _role(name)
        if not role:
            metrics[name] = finite(value)
        elif math.isfinite(value) and (role not in best or rank < best[role][0]):
            best[role] = rank, value
    counted = {role: value for role, (_, value) in best.items()}
    step, total, epoch = counted.get("step"), counted.get("total"), counted.get("epoch")
    if step is None and epoch is not None and epoch == math.floor(epoch):
        step, total = epoch, total if total is not None else counted.get("epochs")
    elif epoch is not None:
        metrics["epoch"] = epoch
    return ProgressRow(whole(step), whole(total), metrics, moment(counted.get("time")))


_ROLES = {"step": STEPS, "total": TOTALS, "epoch": ("epoch",), "epochs": EPOCHS, "time": TIMES}


@functools.lru_cache(1024)
def _role(name: str) -> tuple[str, int]:
    """Role of a name, and its rank among names of that role; empty for a metric."""
    low = name.lower().strip()
    return next(((role, names.index(low)) for role, names in _ROLES.items() if low in names), ("", 0))


def whole(value: float | None) -> int | None:
    """The value as a count; None if it cannot be one."""
    return int(value) if value is not None and math.isfinite(value) and 0 <= value < 2**53 else None


def moment(value: float | None) -> float | None:
    """Seconds since 1970, from seconds or milliseconds; None for times relative to another start."""
    if value is None or not math.isfinite(value):
        return None
    if 1e9 <= value < 1e10:
        return value
    return value / 1000 if 1e12 <= value < 1e13 else None
