"""Two lines for training code: report progress, and save when asked to stop.

    from sterna import agent

    agent.on_stop(save)                           # a function that writes a checkpoint
    for step in range(start, total):
        ...
        agent.report(step + 1, total, loss=loss)

Standard library only. No function raises (except the `SystemExit` that ends a process after its save) or blocks, and
none needs Sterna: without it reports are dropped, and SIGTERM still saves. The agent does not write checkpoints, start
processes or use the network; `sterna.agent.elastic` does the latter for jobs that are resized while they run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sterna.agent.membership import Member, World
from sterna.agent.process import HERE
from sterna.agent.stopping import EXIT_CODE

__all__ = [
    "EXIT_CODE",
    "Member",
    "World",
    "checkpoint_dir",
    "on_stop",
    "report",
    "saved",
    "should_stop",
    "world",
]

Save = TypeVar("Save", bound="Callable[[], object] | None")


def report(step: Any = None, total: Any = None, **metrics: Any) -> None:
    """Report steps done, total steps and metrics: `report(120, 5000, loss=0.31, accuracy=0.9)`.

    Call it between steps, at any rate. At most four lines a second are written; between them the newest value of each
    metric is kept and written a quarter of a second later. If the process has been asked to stop, the function given
    to `on_stop` runs now and the process ends.
    """
    HERE.report(step, total, metrics)


def should_stop() -> bool:
    """Return True if the process has been asked to stop. The function given to `on_stop` runs here, and the process
    ends; without one, save, call `saved()`, and exit."""
    return HERE.should_stop()


def on_stop(save: Save) -> Save:
    """Make SIGTERM set a flag, and run `save` at the next `report()` or `should_stop()`, between steps; then the
    process ends with code 143. Call it in the main thread. Usable as a decorator; None removes the handler."""
    HERE.on_stop(save)
    return save


def saved(step: int | None = None) -> None:
    """Report a complete checkpoint, of the given step or of the last reported one: a stop from now on loses only the
    work since. After an `on_stop` save this is automatic."""
    HERE.saved(step)


def world() -> World:
    """Return rank, size and generation of this process in its group, as the scheduler wants them now. Rank -1: not a
    member. Without a group: rank 0 of 1."""
    return HERE.world()


def checkpoint_dir(default: str | Path = "checkpoints") -> Path:
    """Return the folder for checkpoints, which survives restarts and moves; `default` without Sterna. The folder is
    created if possible."""
    return HERE.checkpoint_dir(default)
