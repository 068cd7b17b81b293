"""The bounds of ranges, and the ranges of multiranges, as PostgreSQL prints them."""

from __future__ import annotations

import pytest

from schemas.range_text import multirange_ranges, range_bounds


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        (b"empty", None),
        (b"[1,5)", (b"1", b"5", True, False)),
        (b"(,)", (None, None, False, False)),
        (b"(-1.50,2]", (b"-1.50", b"2", False, True)),
        (b'["2024-01-01 00:00:00",infinity)', (b"2024-01-01 00:00:00", b"infinity", True, False)),
        (b'["","a""b\\\\c,(d]"]', (b"", b'a"b\\c,(d]', True, True)),
    ],
)
def test_bounds_are_as_their_types_print_them(
    text: bytes, bounds: tuple[bytes | None, bytes | None, bool, bool] | None
) -> None:
    assert range_bounds(text) == bounds


@pytest.mark.parametrize(
    "text",
    [b"", b"Empty", b"[1,5", b"1,5)", b"[1)", b"[1,2,3)", b"[1,5) ", b'["1,5)', b'["1"2,5)',
     b"[1\\,5)", b"[(1,5)", b"{[1,5)}"],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a range"):
        range_bounds(text)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        (b"{}", []),
        (b"{[1,5)}", [b"[1,5)"]),
        (b"{(,1),[2,2],[5,)}", [b"(,1)", b"[2,2]", b"[5,)"]),
        (b'{["a},{",b),["",)}', [b'["a},{",b)', b'["",)']),
    ],
)
def test_a_multirange_has_ranges_in_order(text: bytes, ranges: list[bytes]) -> None:
    assert multirange_ranges(text) == ranges


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"}", b"{,}", b"{[1,5)", b"[1,5)}", b"{[1,5),}", b"{[1,5)[7,9)}", b"{[1,5)},",
     b"{empty}", b"{[1,5)}{[1,5)}", b"{}{}", b" {}"],
)  # fmt: skip
def test_other_text_is_no_multirange(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a multirange"):
        multirange_ranges(text)
