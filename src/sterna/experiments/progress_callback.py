"""Type of the callbacks by which simulations, comparisons and studies report how much is done."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[int, int], None]
"""Called with the amount that is done and the total."""
