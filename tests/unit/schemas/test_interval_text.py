"""The parts of intervals as PostgreSQL prints them."""

from __future__ import annotations

import pytest

from schemas.interval_text import interval_parts

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"00:00:00", (0, 0, 0)),
        (b"1 year 2 mons 3 days 04:05:06.7", (14, 3, 4 * HOUR + 306_700_000)),
        (b"-1 years -2 mons +3 days -04:00:00", (-14, 3, -4 * HOUR)),
        (b"1 mon", (1, 0, 0)),
        (b"-1 days +00:00:00.000001", (0, -1, 1)),
        (b"-00:00:00.5", (0, 0, -500_000)),
        (b"178956970 years 7 mons", (2**31 - 1, 0, 0)),
        (b"-2562047788:00:54.775808", (0, 0, -(2**63))),
    ],
)
def test_each_part_has_its_own_sign(text: bytes, parts: tuple[int, int, int]) -> None:
    assert interval_parts(text) == parts


@pytest.mark.parametrize(
    "text",
    [b"", b"infinity", b"1", b"1 day ", b" 1 day", b"P1D", b"@ 1 day", b"1 day 1 mon", b"1:2:3",
     b"1 week", b"178956970 years 8 mons", b"2562047788:00:54.775808", b"1 day 00:00:00 ago"],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="interval"):
        interval_parts(text)
