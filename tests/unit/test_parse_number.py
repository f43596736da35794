"""Numbers as people write them, which is not all that Python reads."""

from __future__ import annotations

import re

import pytest

from sterna.parse_number import real, whole


@pytest.mark.parametrize("text", ["1_000", "1_0.5", "٣", "1e1_0", "\u00a05", "many"])
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    for read in (real, whole):
        with pytest.raises(ValueError, match=re.escape(text)):
            read(text)


def test_plain_numbers_are_read_as_python_reads_them() -> None:
    assert [real(text) for text in ("12", " 1.5 ", "-1e3", ".5")] == [12, 1.5, -1000, 0.5]
    assert [whole(text) for text in ("12", " -3 ")] == [12, -3]
