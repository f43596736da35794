"""Choices that stand until a user makes another, in one place so that every way in agrees.

What a single rule may be told is not here: its parameters live with the rule.
"""

from __future__ import annotations

BASELINE_POLICY = "fifo:preempt=false"
"""What people run today: first come, first served, gaps filled, nobody stopped. Comparisons are relative to it."""

DEFAULT_PLACEMENT = "stay"

_PLACEMENT_OF = {"dragon": "pack"}
"""Policies that were made for another placement."""


def placement_for(policy: str) -> str:
    """The placement that a policy gets when nobody chooses one."""
    return _PLACEMENT_OF.get(policy.partition(":")[0].strip().lower(), DEFAULT_PLACEMENT)
