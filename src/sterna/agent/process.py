"""State of the agent in this process, read once from the environment: folder, reporter, stop request, membership.

Without Sterna's environment variables all of them are idle.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sterna.agent.membership import Membership, World
from sterna.agent.reporting import Reporter
from sterna.agent.stopping import Stopping


class AgentProcess:
    """A training process as the agent sees it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = environment.get("STERNA_DIR", "")
        self.job = environment.get("STERNA_JOB", "")
        self.membership = Membership(environment)
        self.reporter = Reporter(self.folder)
        termination_log = environment.get("STERNA_TERMINATION_LOG", "")
        self.stopping = Stopping(self.folder, self.reporter, termination_log)
        self._checkpoints = environment.get("STERNA_CHECKPOINT_DIR", "")

    def report(self, step: Any, total: Any, metrics: Mapping[str, Any]) -> None:
        self.reporter.report(step, total, metrics, self.membership.generation)
        if self.stopping.is_asked:
            self.stopping.act()

    def should_stop(self) -> bool:
        self.stopping.register()
        if self.stopping.is_asked:
            self.stopping.act()
        return self.stopping.is_asked

    def on_stop(self, save: Callable[[], object] | None) -> None:
        self.stopping.save = save
        if save is not None:
            self.stopping.register()

    def saved(self, step: int | None) -> None:
        self.stopping.write_saved(step)

    def world(self) -> World:
        return self.membership.world()

    def checkpoint_dir(self, default: str | Path) -> Path:
        folder = Path(self._checkpoints or default)
        with suppress(OSError):  # the first save raises the error in the training script
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def shared_folder(self) -> str:
        """Folder that every process of this job may write to."""
        if self._checkpoints:
            return str(self.checkpoint_dir(self._checkpoints))
        return os.path.dirname(self.membership.path)

    def reset_after_fork(self) -> None:
        """Reset in a forked child: pending reports belong to the parent, and SIGTERM gets its former handler back."""
        self.reporter.reset_after_fork()
        self.stopping.reset_after_fork()


HERE = AgentProcess(os.environ)

os.register_at_fork(after_in_child=HERE.reset_after_fork)
atexit.register(HERE.reporter.flush)
