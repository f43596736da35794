"""Names for jobs whose manifest names only their category: category and time, as Voda makes them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator


def stamp_name(category: str, at: float) -> str:
    """`mnist-20240501-163000`, in local time."""
    return f"{category}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}"


def name_candidates(name: str) -> Iterator[str]:
    """The name, then alternatives if it is taken: `mnist-20240501-163000-1`, `-2`, .."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(1))
