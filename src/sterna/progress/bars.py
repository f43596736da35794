"""Progress bars on stdout and stderr: Keras, tqdm, Lightning.

Bars count batches within an epoch; the result counts steps of the whole training, if the bar shows how many batches an
epoch has. Bars of other work (downloads, validation) are left out.
"""

from __future__ import annotations

import math
import re

from sterna.progress.names import NUMBER, ProgressRow, finite, number, whole

_KERAS = re.compile(r"^\s*(\d+)/(\d+|Unknown)\b.*?\b\d+m?u?s(?:/step|/epoch|/sample)?\b(.*)$")
_BAR = re.compile(r"^(.*?)\s*\d+%\|[^|]*\|\s*([\d.]+[kKMGT]?)/([\d.]+[kKMGT]?)\s*\[([^\]]*)")
_RICH = re.compile(r"^Epoch (\d+)/(\d+)\s+[^\w\s]+\s+(\d+)/(\d+)\s(.*)$")
_EPOCH_LINE = re.compile(r"^\s*Epoch:?\s+\[?(\d+)\s*/\s*(\d+)\]?:?\s*$", re.IGNORECASE)
_EPOCH = re.compile(r"epoch\s*\[?\s*(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_NAMED = re.compile(rf"([A-Za-z_][\w./@-]*)\s*[=:]\s*({NUMBER})(?![\w.])")
_ASIDE = re.compile(
    r"\b(download|fetch|load|map|filter|token|extract|eval|valid|test|predict|sanity|resolv|generat|sav|unzip|unpack|"
    r"read|writ|upload|prepar|preproc|creat|build|cach|cast)",
    re.IGNORECASE,
)
_BYTES_RATE = re.compile(r"\d\s?[kMGT]?i?B/s|examples/s")
_SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Bars:
    """Reads bars line by line: the epoch of a heading applies to the bars below it."""

    def __init__(self) -> None:
        self._epoch = 1
        self._epochs: int | None = None
        self._has_zero = False
        self._longest = 0

    def read(self, line: str) -> tuple[str, ProgressRow] | None:
        """Name of the library that drew the bar, and its progress."""
        for name, reader in (("keras", self._keras), ("progress bar", self._tqdm), ("lightning", self._rich)):
            found = reader(line)
            if found is not None:
                return name, found
        return None

    def read_epoch_heading(self, line: str) -> bool:
        """Remember the epoch if the line is the heading of one, which is no progress by itself."""
        match = _EPOCH_LINE.match(line)
        if match:
            self._epoch, self._epochs = int(match[1]), int(match[2])
        return bool(match)

    def _keras(self, line: str) -> ProgressRow | None:
        match = _KERAS.match(line) if line.lstrip()[:1].isdigit() else None
        metrics = _metrics(match[3]) if match else {}
        if match is None or not metrics:
            return None
        batch = int(match[1])
        if match[2] == "Unknown":
            return ProgressRow(batch if self._epoch == 1 else None, None, metrics)
        size = int(match[2])
        total = size * self._epochs if self._epochs else size
        return ProgressRow((self._epoch - 1) * size + batch, total, metrics)

    def _tqdm(self, line: str) -> ProgressRow | None:
        match = _BAR.match(line) if "%|" in line else None
        if match is None or _ASIDE.search(match[1]) or _BYTES_RATE.search(match[4]):
            return None
        done, size = _to_power(match[2]), _to_power(match[3])
        metrics = _metrics(match[4]) | _metrics(match[1])
        epoch = _EPOCH.search(match[1])
        if epoch:
            return self._in_epoch(int(epoch[1]), int(epoch[2]) if epoch[2] else None, done, size, metrics)
        if size < self._longest and not metrics:
            return None  # a shorter bar beside the training's own: a validation without a name
        self._longest = max(self._longest, size)
        return ProgressRow(whole(done), whole(size), metrics)

    def _in_epoch(
        self, epoch: int, epochs: int | None, done: int, size: int, metrics: dict[str, float | None]
    ) -> ProgressRow:
        self._has_zero = self._has_zero or not epoch
        before = epoch if self._has_zero else max(epoch - 1, 0)
        return ProgressRow(before * size + done, size * epochs if epochs else None, metrics)

    def _rich(self, line: str) -> ProgressRow | None:
        match = _RICH.match(line) if line.startswith("Epoch ") else None
        if match is None:
            return None
        epoch, last, done, size = (int(each) for each in match.groups()[:4])
        return ProgressRow(epoch * size + done, (last + 1) * size, _metrics(match[5]))


def _metrics(text: str) -> dict[str, float | None]:
    return {name: finite(number(value)) for name, value in _NAMED.findall(text) if name != "v_num"}


def _to_power(text: str) -> int:
    factor = _SCALE.get(text[-1:], 1.0)
    value = number(text.rstrip("kKMGT")) * factor
    return int(value) if math.isfinite(value) else 0
