"""Parsers for numbers in user input: ASCII digits, a sign, a point, an exponent.

`int` and `float` also accept underscores (`1_000`) and the digits of every script, which are typing mistakes in user
input. These parsers reject them with ValueError, as `int` and `float` do.
"""

from __future__ import annotations


def is_plain(text: str) -> bool:
    """Return False for text that `int` and `float` accept but users do not mean."""
    return text.isascii() and "_" not in text


def real(text: str) -> float:
    if not is_plain(text):
        raise ValueError(text)
    return float(text)


def whole(text: str) -> int:
    if not is_plain(text):
        raise ValueError(text)
    return int(text)
