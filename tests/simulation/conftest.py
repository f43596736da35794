"""Fixtures of simulations."""

from __future__ import annotations

import pytest

from sterna.engine import priced_policy


@pytest.fixture
def unpriced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let policies make changes that do not pay, so that a few short jobs show what each change costs."""
    monkeypatch.setattr(priced_policy, "LOSS_SHARE", 1e18)
    monkeypatch.setattr(priced_policy, "PAYBACK", 0.0)
