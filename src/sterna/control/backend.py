"""What the controller needs of a world. A difference between worlds is another backend, never an `if` in the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sterna.model.plan import Action, Outcome
from sterna.model.snapshot import Snapshot


class Backend(Protocol):
    def observe(self) -> Snapshot:
        """What is known now. Columns of the last snapshot no longer hold."""
        ...

    def apply(self, actions: Sequence[Action], /) -> Sequence[Outcome]:
        """Carry out a batch whose members may run side by side; one outcome each. Idempotent."""
        ...

    def wait(self, until: float, /) -> bool:
        """Sleep until something happens, but not beyond `until`; false if nothing ever will."""
        ...
