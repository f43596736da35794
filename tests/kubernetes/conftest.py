"""Fixtures of the tests that need a real control plane: `make test-kubernetes`.

They are collected only where this folder or a file of it is named on the command line, so that `make test` neither
builds anything nor takes minutes longer on a machine where they happen to work.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api import Api
from tests.kubernetes.binaries import NotAvailable
from tests.kubernetes.control_plane import ControlPlane, DidNotStart, Parts
from tests.kubernetes.fake_nodes import fleet
from tests.kubernetes.operated import Operated, operated

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [(config.invocation_params.dir / each.partition("::")[0]).resolve() for each in config.args]
    is_asked_for = any(each == HERE or HERE in each.parents for each in named)
    return None if is_asked_for or not collection_path.is_relative_to(HERE) else True


def running_plane(parts: Parts) -> Iterator[ControlPlane]:
    """Skip with a message that names what to install, where the programs are missing."""
    try:
        plane = ControlPlane(parts)
        plane.start()
    except DidNotStart:
        raise
    except NotAvailable as error:
        pytest.skip(str(error))
    try:
        yield plane
    finally:
        plane.close()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """etcd and an API server, new for each file."""
    yield from running_plane(Parts())


@pytest.fixture(scope="module")
def full_plane() -> Iterator[ControlPlane]:
    """With the controllers of Kubernetes beside them: garbage collection, service accounts, lost nodes."""
    yield from running_plane(Parts(has_controllers=True))


@pytest.fixture(scope="module")
def scheduled_plane() -> Iterator[ControlPlane]:
    """With the default scheduler too."""
    yield from running_plane(Parts(has_controllers=True, has_scheduler=True))


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    with plane.api() as api:
        yield api


@pytest.fixture(scope="module")
def operator_cluster(full_plane: ControlPlane) -> Iterator[Operated]:
    """Three nodes of four GPUs and an operator that leads, for all tests of a file."""
    with operated(full_plane, fleet(3, gpus=4)) as cluster:
        yield cluster


@pytest.fixture
def cluster(operator_cluster: Operated) -> Iterator[Operated]:
    """The control plane, emptied after each test."""
    yield operator_cluster
    operator_cluster.delete_all()
