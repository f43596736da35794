"""Rules by name: a user's own file, and the placement that a policy prefers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.engine.registry import _rules
from sterna.errors import UserError
from sterna.settings import DEFAULT_PLACEMENT
from sterna.wiring import discover, preferred_placement

OWN_POLICY = """
from dataclasses import dataclass
from sterna.engine.registry import Target, policy

@policy("{name}")
@dataclass(frozen=True)
class Own:
    {attribute}

    def __call__(self, snapshot):
        return Target(snapshot.jobs.minimum)
"""


def test_policy_gets_the_placement_that_it_prefers() -> None:
    assert preferred_placement("dragon:patience=10") == preferred_placement("DRAGON") == "pack"
    assert preferred_placement("elastic-fifo") == DEFAULT_PLACEMENT


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test register rules in a copy of the registry."""
    discover()
    monkeypatch.setattr("sterna.engine.registry._rules", {kind: dict(rules) for kind, rules in _rules.items()})


@pytest.mark.usefixtures("registry")
def test_policy_of_a_file_may_prefer_a_placement(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    for attribute, expected in (("pass", DEFAULT_PLACEMENT), ('preferred_placement = "spread"', "spread")):
        file.write_text(OWN_POLICY.format(name="own", attribute=attribute))
        assert preferred_placement(str(file)) == expected


def test_unknown_policy_has_no_preferred_placement() -> None:
    with pytest.raises(UserError, match="There is no policy 'dragno': did you mean 'dragon'"):
        preferred_placement("dragno")
