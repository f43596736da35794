"""Numbers as people write them: plain digits, a sign, a point, an exponent.

Python's own readers also take the underscores of its source code (`1_000`) and the digits of every script; where
a person wrote that, it is a slip, and is refused like any other. Like Python's, these raise ValueError, so that whoever
asked words the refusal.
"""

from __future__ import annotations


def is_plain(text: str) -> bool:
    """Nothing in it that a number may not hold, though Python would let it pass."""
    return text.isascii() and "_" not in text


def real(text: str) -> float:
    if not is_plain(text):
        raise ValueError(text)
    return float(text)


def whole(text: str) -> int:
    if not is_plain(text):
        raise ValueError(text)
    return int(text)
