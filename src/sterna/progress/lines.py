r"""Progress in lines of output, matched by the user's patterns or by built-in ones.

A pattern is a regular expression with named groups: `step`, `total`, `epoch`, `epochs`, `time`, and every other name is
a metric: `step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)`. The built-in ones know JSON lines, dictionaries as
Hugging Face prints them, Keras, tqdm, Lightning, TensorFlow's benchmarks, and `name=value` in most of its forms. Other
lines are skipped; a pattern that takes too long is dropped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sterna.errors import UserError
from sterna.progress.bars import Bars
from sterna.progress.names import (
    NUMBER,
    QUALITIES,
    ProgressRow,
    classify_values,
    finite,
    is_quality,
    number,
    whole,
)

_LONGEST_LINE = 4096
_LONGEST_FOR_PATTERN = 1024
"""Longer lines are not matched: the time of a pattern with several stars grows with a power of the length."""
_SLOW_SECONDS = 0.05
_MOST_SLOW = 3

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DIGIT = re.compile(r"\d|nan|inf")
_TELLING = ("loss", "acc", "step", "epoch", "iter", "batch", "%|", "/sec", *QUALITIES)
"""A line without any of these holds no progress; most lines of a log do not."""
_PAIR = re.compile(
    rf"(?:\b(train|val|valid|validation|eval|test)\s+)?([A-Za-z_][\w./@-]*)['\"]?(\s*[=:]\s*|\s+)['\"]?\[?\s*({NUMBER})(?:\s*/\s*({NUMBER}))?(?![\w.]*[A-Za-z_])"
)
_QUOTED = re.compile(rf"['\"]([\w./@ -]+)['\"]\s*:\s*['\"]?({NUMBER})['\"]?\s*[,}}]")
_BENCHMARK = re.compile(rf"^(\d+)\s+images/sec:\s+({NUMBER}).*\)\s+({NUMBER})")
_COUNTER = re.compile(r"(?:^\s*|[\[(]\s*)(\d+)\s*/\s*(\d+)(?=[\s:,|\])])")
_STEP_WORDS = frozenset({"step", "steps", "global_step", "iter", "iteration", "iterations", "batch", "it"})


class LineMatch(NamedTuple):
    """Progress in a line, and the pattern that matched it."""

    row: ProgressRow
    pattern: str


class LineReader:
    """Reads one stream of lines, in order."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.notices: list[str] = []
        self._patterns = compile_patterns(patterns)
        self._slow = dict.fromkeys(patterns, 0)
        self._bars = Bars()
        self._step: int | None = None
        self._total: int | None = None

    def read(self, raw: bytes | str) -> LineMatch | None:
        """Match one line; None for most lines."""
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        if len(text) > _LONGEST_LINE:
            text = text[:_LONGEST_LINE]
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        found = self._match_patterns(text) if self._slow else self._match_built_in(text)
        if found is None:
            return None
        return self._with_step(found)

    def _with_step(self, found: LineMatch) -> LineMatch:
        """Values on a line without a step belong to the step that was printed last."""
        row = found.row
        if row.step is None:
            total = row.total if row.total is not None else self._total
            return LineMatch(row._replace(step=self._step, total=total), found.pattern)
        self._step, self._total = row.step, row.total
        return found

    def _match_patterns(self, text: str) -> LineMatch | None:
        for pattern in list(self._patterns):
            began = time.thread_time()
            match = pattern.search(text[:_LONGEST_FOR_PATTERN])
            if time.thread_time() - began > _SLOW_SECONDS:
                self._count_slow(pattern)
            if match:
                values = {name: number(text) for name, text in match.groupdict().items() if text is not None}
                if values:
                    return LineMatch(classify_values(values), pattern.pattern)
        return None

    def _count_slow(self, pattern: re.Pattern[str]) -> None:
        self._slow[pattern.pattern] += 1
        if self._slow[pattern.pattern] >= _MOST_SLOW:
            self._patterns.remove(pattern)
            self.notices.append(
                f"The pattern '{pattern.pattern}' took more than {_SLOW_SECONDS * 1000:.0f} ms for a line, "
                f"{_MOST_SLOW} times, and is not used any more; write it with fewer stars."
            )

    def _match_built_in(self, text: str) -> LineMatch | None:
        if not may_hold_progress(text):
            return None
        start = text.lstrip()[:1]
        if start == "{":
            found = _json(text) or _dictionary(text)
            if found:
                return found
        if self._bars.read_epoch_heading(text):
            return None
        bar = self._bars.read(text)
        if bar:
            return LineMatch(bar[1], bar[0])
        if "%|" in text:
            return None  # a bar of other work
        return (_benchmark(text) if start.isdigit() else None) or _pairs(text)


def may_hold_progress(text: str) -> bool:
    """Cheap test that every line has to pass before patterns are tried."""
    low = text.lower()
    return any(word in low for word in _TELLING) and bool(_DIGIT.search(low))


def _json(text: str) -> LineMatch | None:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    values: dict[str, float] = {}
    for name, value in document.items():
        parts = value.items() if isinstance(value, dict) else ((name, value),)
        values |= {str(part): float(each) for part, each in parts if _is_number(each)}
    return _match_if_progress("JSON", classify_values(values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _dictionary(text: str) -> LineMatch | None:
    values = {name: number(value) for name, value in _QUOTED.findall(text)}
    return _match_if_progress("Hugging Face", classify_values(values))


def _benchmark(text: str) -> LineMatch | None:
    match = _BENCHMARK.match(text)
    if match is None:
        return None
    metrics = {"images/sec": finite(number(match[2])), "loss": finite(number(match[3]))}
    return LineMatch(ProgressRow(int(match[1]), None, metrics), "images/sec")


def _pairs(text: str) -> LineMatch | None:
    values: dict[str, float] = {}
    of: dict[str, float] = {}
    for part, name, between, value, total in _PAIR.findall(text):
        low = name.lower()
        kind = "epoch" if low == "epoch" else "step" if low in _STEP_WORDS else ""
        if between.isspace() and not kind and not is_quality(low):
            continue
        values.setdefault(f"{part}_{name}" if part and not kind else name, number(value))
        if total and kind:
            of.setdefault(kind, number(total))
    counter = _COUNTER.search(text) if values and not _STEP_WORDS & {name.lower() for name in values} else None
    if counter and int(counter[1]) <= int(counter[2]):
        values["step"], of["step"] = float(counter[1]), float(counter[2])
    return _match_if_progress("name=value", _over_epochs(values, of)) if values else None


def _over_epochs(values: dict[str, float], of: dict[str, float]) -> ProgressRow:
    """Convert steps within an epoch to steps of the whole training."""
    row = classify_values(values)
    total = row.total if row.total is not None else whole(of.get("step") or of.get("epoch"))
    epoch = next((value for name, value in values.items() if name.lower() == "epoch"), None)
    if epoch is not None and "step" in of and row.step is not None and 0 <= epoch < 2**31:
        size, epochs = int(of["step"]), of.get("epoch")
        return row._replace(
            step=(max(int(epoch), 1) - 1) * size + row.step, total=whole(size * epochs if epochs else None)
        )
    return row._replace(total=total)


def _match_if_progress(pattern: str, row: ProgressRow) -> LineMatch | None:
    """A line is progress if it holds a measure of quality, or a step with a metric or a total."""
    has_quality = any(is_quality(name) for name in row.metrics)
    if has_quality or (row.step is not None and (row.metrics or row.total is not None)):
        return LineMatch(row, pattern)
    return None


def compile_patterns(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    """Compile a user's patterns, or raise `UserError` with what is wrong with one."""
    return [_compile_pattern(pattern) for pattern in patterns]


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        made = re.compile(pattern)
    except re.error as error:
        where = f" at character {error.pos + 1}" if error.pos is not None else ""
        raise UserError(f"The pattern '{pattern}' is no regular expression: {error.msg}{where}; correct it.") from None
    except (RecursionError, OverflowError):
        raise UserError(f"The pattern '{pattern[:60]}..' is too large; write a shorter one.") from None
    if not made.groupindex:
        raise UserError(
            f"The pattern '{pattern}' names nothing to read; give its groups names, as in (?P<step>\\d+) or "
            "(?P<loss>\\S+)."
        )
    if _is_slow(made):
        raise UserError(
            f"The pattern '{pattern}' takes too long on lines that almost match; use fewer stars, and none inside "
            "another as in (a+)*."
        )
    return made


def _is_slow(pattern: re.Pattern[str]) -> bool:
    """True if the time explodes with the length of a line. Tried on lines that grow slowly enough for the trial to end
    soon."""
    words = "".join(re.findall(r"\w+|[ =:/]", re.sub(r"\(\?P<\w+>|\\.", "", pattern.pattern)))
    seeds = sorted({*pattern.pattern, "a", "0", " ", words or "a"})
    for length in _PROBE_LENGTHS:
        for seed in seeds:
            line = (seed * length)[:length] + "\n"
            # Twice: the first run may be slow for other reasons.
            if _seconds(pattern, line) > _PROBE_SECONDS and _seconds(pattern, line) > _PROBE_SECONDS:
                return True
    return False


_PROBE_LENGTHS = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_PROBE_SECONDS = 0.02


def _seconds(pattern: re.Pattern[str], line: str) -> float:
    began = time.thread_time()
    pattern.search(line)
    return time.thread_time() - began
