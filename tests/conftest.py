"""Settings of all tests: one hypothesis profile with a fixed seed, and the build of the kernels that tests run on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.kernel_builds import stale_extensions, use_kernels

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
    parser.addoption(
        "--kernels",
        metavar="pure|FOLDER",
        help="run the Python sources of the compiled modules, or the extension modules below a folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    build = config.getoption("--kernels")
    if build:
        use_kernels(build)
    elif stale := stale_extensions():
        pytest.exit(f"{', '.join(stale)}: older than the source; run any make target to compile it again", returncode=2)
