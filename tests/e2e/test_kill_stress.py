"""Short form of `python -m tests.e2e.kill_stress --kills 1000`."""

from __future__ import annotations

import pytest

from sterna.backends.local.cgroups.select import find_control
from tests.e2e.kill_stress import KillStress
from tests.e2e.replicas import Replicas


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_leave_no_lost_duplicate_or_orphaned_process(replicas: Replicas, seed: int) -> None:
    stress = KillStress(replicas, seed, find_control(replicas.state) if seed % 2 else None)
    stress.run(kills=50)
    assert stress.kills.total() >= 50
    assert stress.ends["recorded"] + stress.ends["lost"] > 0
