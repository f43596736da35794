"""What all tests share: one hypothesis profile, so that a run tomorrow tries what a run today tried; and a way to run
them as where there is no machine code."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "sterna",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("sterna")
