"""A journal keeps what migrations and shares are decided on, so that any round can be decided again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sterna.backends.simulated.config import SharedConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.shared.backend import SharedBackend, shared_nodes
from sterna.backends.simulated.shared.workload import FLAT, SharedWorkload
from sterna.control.journal import JournalWriter, read_opening, read_rounds
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import decide
from sterna.wiring import make_rules
from tests.builders import a_job, a_snapshot, decided

RULES = ("fifo", "spread", "balance:margin=1", "finish")


def write_rounds(path: Path) -> None:
    """Write the journal of six jobs on two shared nodes, one of them with an unknown total."""
    work = np.array([800.0, 500.0, 300.0, 900.0, 700.0, 200.0])
    believed = np.where(np.arange(6) == 4, np.nan, work)
    workload = SharedWorkload(
        tuple(f"j{number}" for number in range(6)),
        np.array([0.0, 0.0, 1.0, 2.0, 2.0, 50.0]),
        work,
        np.full(6, 4.0),
        np.ones(6, dtype=np.int64),
        np.zeros(6, dtype=np.int64),
        FLAT,
        believed,
    )
    backend = SharedBackend(workload, shared_nodes(2, 4.0), SharedConfig(costs=Costs(restart_seconds=1)))
    policy, placement, migration, cpu_share = RULES
    with JournalWriter(path, policy=policy, placement=placement, migration=migration, cpu_share=cpu_share) as journal:
        RoundLoop(backend, make_rules(*RULES), (journal,)).run()


def test_replayed_rounds_give_the_same_actions(tmp_path: Path) -> None:
    write_rounds(tmp_path / "journal")
    opening = read_opening(tmp_path / "journal")
    assert (opening.migration, opening.cpu_share) == RULES[2:]
    rounds = list(read_rounds(tmp_path / "journal"))
    assert {action.kind.name for recorded in rounds for action in recorded.actions} >= {
        "START",
        "SET_CPU_SHARE",
        "MIGRATE",
    }
    for recorded in rounds:
        again = decide(recorded.snapshot, make_rules(*RULES))
        assert tuple(again.plan.actions) == recorded.actions
        assert again.until == recorded.until


def test_unknown_total_round_trips_as_nan(tmp_path: Path) -> None:
    write_rounds(tmp_path / "journal")
    seen = [
        recorded.snapshot.jobs.remaining[row]
        for recorded in read_rounds(tmp_path / "journal")
        for row in range(len(recorded.snapshot.jobs))
        if recorded.snapshot.jobs.name_of(row) == "j4"
    ]
    assert seen
    assert np.isnan(seen).all()


def test_journal_without_shared_nodes_has_no_extras(tmp_path: Path) -> None:
    snapshot = a_snapshot([a_job("a", 2)], 4)
    with JournalWriter(tmp_path / "journal", policy="fifo", placement="stay") as journal:
        journal.record(snapshot, decided(snapshot).decision)
    last = json.loads((tmp_path / "journal").read_text().splitlines()[-1])
    assert (last["extras"], last["terms"]) == ({}, [])
