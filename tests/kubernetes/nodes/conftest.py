"""Fixtures of the tests on real nodes, `make test-nodes`, as root. Elsewhere they are skipped, with what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.kubernetes.binaries import NotAvailable
from tests.kubernetes.control_plane import DidNotStart
from tests.kubernetes.nodes.apart import what_is_missing
from tests.kubernetes.nodes.machines import Machines
from tests.kubernetes.nodes.training import give_gpus
from tests.kubernetes.operated import install


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    """Two real nodes."""
    if missing := what_is_missing():
        pytest.skip(missing)
    try:
        started = Machines(2, lambda what: print(f"  {what}", file=sys.stderr, flush=True))
        started.start()
    except DidNotStart:
        raise
    except NotAvailable as error:
        pytest.skip(str(error))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def labelled(machines: Machines) -> Machines:
    """Label each node with two GPUs, which no process uses."""
    with machines.plane.api() as api:
        install(api)
        for name in machines.names:
            give_gpus(api, name)
    return machines
