"""Two lines for training code: say how far it is, and save when asked to stop.

    from sterna import agent

    agent.on_stop(save)                           # a function that writes a checkpoint
    for step in range(start, total):
        ...
        agent.report(step + 1, total, loss=loss)

For scripts that people already have. Standard library only. Nothing here raises (but the `SystemExit` that ends a
process which has saved), waits for anybody, or needs Sterna to be there: without it reports go nowhere, and SIGTERM
still saves. It does not write checkpoints, start processes or talk to the network; `sterna.agent.elastic` does the
latter for jobs that change their size while they run.
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
    """Tell how many steps are done, of how many, and what was measured: `report(120, 5000, loss=0.31, accuracy=0.9)`.

    Call it between steps, as often as you like. At most four lines a second are written; of reports in between the
    newest value of each metric is kept, and is on disk a quarter of a second later. If the process has been asked to
    stop, what `on_stop` was given runs now and the process ends.
    """
    HERE.report(step, total, metrics)


def should_stop() -> bool:
    """Has the process been asked to stop? What `on_stop` was given runs here, and then the process ends; without it,
    save, call `saved()`, and leave."""
    return HERE.should_stop()


def on_stop(save: Save) -> Save:
    """From now on SIGTERM sets a flag, and `save` runs at the next `report()` or `should_stop()`, between steps; then
    the process ends with code 143. Call it in the main thread. Usable as a decorator; None takes it back."""
    HERE.on_stop(save)
    return save


def saved(step: int | None = None) -> None:
    """Tell that a checkpoint is complete, of the step given or last reported: whatever is done to the job from here on
    costs it only the work since. After an `on_stop` save this happens by itself."""
    HERE.saved(step)


def world() -> World:
    """Rank, size and generation of this process among those that train together, as they are meant to be now. Rank -1:
    not among them (yet, or any more). Alone: rank 0 of 1."""
    return HERE.world()


def checkpoint_dir(default: str | Path = "checkpoints") -> Path:
    """The folder for checkpoints, which survives restarts and moves; `default` where Sterna is absent. It exists when
    this returns, if it can be made at all."""
    return HERE.checkpoint_dir(default)
