"""Names for jobs whose manifest names only their category: that and the time, as Voda makes them (VODA-3)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator


def stamped(category: str, at: float) -> str:
    """`mnist-20240501-163000`, by the clock on the wall."""
    return f"{category}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}"


def numbered(name: str) -> Iterator[str]:
    """The name, and what to try when it is taken: `mnist-20240501-163000-1`, `-2`, .."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(1))
