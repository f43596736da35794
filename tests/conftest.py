"""What all tests share: one hypothesis profile, so that a run tomorrow tries what a run today tried; and a way to run
them as where there is no machine code."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from sterna.engine.kernels import native

settings.register_profile(
    "sterna",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("sterna")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--columns", action="store_true", help="without machine code, as where nothing could be compiled")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--columns"):
        native.use(None)
