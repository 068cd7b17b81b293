"""Arrays as text. Expected: PostgreSQL 16 and 18."""

from __future__ import annotations

import pytest

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.arrays import Array, parse_array
from gateway.pgtypes.numbers.integers import parse_integer


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (b"{}", ()),
        (b"{1}", (1,)),
        (b"{1,NULL,-3}", (1, None, -3)),
        (b"{{1,2},{3,4},{5,6}}", (1, 2, 3, 4, 5, 6)),
        (b"[0:1]={7,8}", (7, 8)),
        (b"[-2:-1][3:3]={{1},{2}}", (1, 2)),
    ],
)
def test_the_items_of_an_array_are_read_as_they_are_printed(
    text: bytes, items: tuple[int | None, ...]
) -> None:
    assert parse_array(text, parse_integer) == Array(items)


def test_elements_may_be_quoted() -> None:
    found = parse_array(b'{a,"b c","d\\"e\\\\f","","NULL",NULL,"{,}"}', bytes)

    assert found.items == (b"a", b"b c", b'd"e\\f', b"", b"NULL", None, b"{,}")


@pytest.mark.parametrize(
    "text", [b"", b"1", b"{", b"{1", b"{1}x", b"{1}}", b'{"1}', b"[0:0]", b"{x}"]
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_array(text, parse_integer)
