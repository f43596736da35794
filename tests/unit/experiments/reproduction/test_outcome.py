"""Rows of a reproduction say the band by which they are judged."""

from __future__ import annotations

import pytest

from sterna.experiments.reproduction.outcome import Reproduction, Row, TargetBand, judged_row


@pytest.mark.parametrize(
    ("band", "text", "inside", "outside"),
    [
        (TargetBand(70.0, 90.0), "70 to 90", 90.0, 90.1),
        (TargetBand(high=-14.8), "≤ -14.8", -15.0, -14.7),
        (TargetBand(low=20.0), "≥ 20", 20.0, 19.9),
    ],
)
def test_row_holds_if_ours_is_in_its_band(band: TargetBand, text: str, inside: float, outside: float) -> None:
    assert judged_row("c", "m", None, band, inside).holds is True
    row = judged_row("c", "m", None, band, outside)
    assert row.holds is False
    assert row.target_text == text


def test_only_bound_of_a_band_is_the_target_of_the_document() -> None:
    rows = [
        judged_row("c", "m", None, TargetBand(high=3.0), 2.0),
        judged_row("c", "m", None, TargetBand(70.0, 90.0), 80.0),
    ]
    document = Reproduction("n", "q", [*rows, Row("c", "m", 1.0, None, 2.0, None)]).as_document()
    assert [(row["target"], row["judged_by"]) for row in document["rows"]] == [
        (3.0, "≤ 3"),
        (None, "70 to 90"),
        (None, ""),
    ]
