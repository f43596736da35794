"""Counts for sentences: `1 worker`, `1,200 workers`."""

from __future__ import annotations


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {plural(count, noun)}"


def plural(count: float, noun: str) -> str:
    """Return the noun in the form that agrees with the count."""
    return noun if count == 1 else f"{noun}s"
