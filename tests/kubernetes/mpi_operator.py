"""Kubeflow's MPI operator beside a control plane, as a Deployment would keep it: started again whenever it ends.

It ends if it cannot renew its lease for five seconds, which happens on a busy machine, and if its port 8080, which is
not configurable, is taken. So only one runs at a time among runs of these tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.binaries import PROGRAMS, NotAvailable, module_folder, need, one_at_a_time
from tests.kubernetes.control_plane import ControlPlane, dying_with_us
from tests.kubernetes.operated import install

NAME = "mpi-operator"
_FOR_EVER = 'while :; do "$@"; sleep 1; done'


@contextmanager
def mpi_operator(plane: ControlPlane) -> Iterator[None]:
    """Running, with its definition installed, for as long as the block; skipped where it can neither be found nor be
    built."""
    try:
        program, source = need(NAME), module_folder(PROGRAMS[NAME])
    except NotAvailable as error:
        pytest.skip(str(error))
    with one_at_a_time(f"{NAME}.lock", lambda what: print(f"  {what}", file=sys.stderr, flush=True)):
        with plane.api() as api:
            install(api, source / "manifests" / "base" / "kubeflow.org_mpijobs.yaml")
        flags = ["-kubeConfig", str(plane.kubeconfig), "-lock-namespace", "default"]
        plane.start_beside(NAME, ["sh", "-c", _FOR_EVER, "sh", *dying_with_us(), str(program), *flags])
        try:
            yield
        finally:
            plane.kill(NAME)
