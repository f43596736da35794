"""The watchdog of the round loop, on a clock of the test's own."""

from __future__ import annotations

from sterna.control.health import LoopWatchdog


def test_loop_without_a_finished_round_for_the_stall_time_is_not_alive() -> None:
    now = [0.0]
    watchdog = LoopWatchdog(120.0, lambda: now[0])
    now[0] = 119.0
    assert watchdog.is_alive
    assert watchdog.check_live() == (True, "ok")
    now[0] = 130.0
    assert not watchdog.is_alive
    assert watchdog.check_live() == (False, "The scheduling loop has not finished a round for 130 s.")


def test_beat_makes_the_loop_alive_again() -> None:
    now = [500.0]
    watchdog = LoopWatchdog(120.0, lambda: now[0])
    now[0] = 1000.0
    watchdog.beat()
    assert watchdog.is_alive


def test_idle_loop_runs_several_rounds_per_stall_time() -> None:
    assert LoopWatchdog(120.0).period_seconds == 30.0
