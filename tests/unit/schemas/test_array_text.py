"""The items of arrays as PostgreSQL prints them."""

from __future__ import annotations

import pytest

from schemas.array_text import NotPlainError, array_items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (b"{}", []),
        (b"{1}", [b"1"]),
        (b"{1,NULL,3}", [b"1", None, b"3"]),
        (b'{"NULL","",null}', [b"NULL", b"", b"null"]),
        (b'{"a \\"b\\\\",c}', [b'a "b\\', b"c"]),
        (b'{"{1,2}","(1,\\"x,y\\")","[1,5)"}', [b"{1,2}", b'(1,"x,y")', b"[1,5)"]),
        (b'{"a\nb",\xc3\xa9}', [b"a\nb", "é".encode()]),
    ],
)
def test_items_are_as_their_types_print_them(text: bytes, items: list[bytes | None]) -> None:
    assert array_items(text) == items


@pytest.mark.parametrize("text", [b"{{1,2},{3,4}}", b"[0:1]={1,2}", b"[1:1][2:3]={{1,2}}"])
def test_an_array_that_is_no_list_is_not_one(text: bytes) -> None:
    with pytest.raises(NotPlainError, match="dimension"):
        array_items(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"}", b"{1", b"1}", b"{1,}", b"{,1}", b"{1}2}", b'{"1}', b'{"1"2}', b"{1,{2}}",
     b'{1"2"}', b"{1\\,2}", b'{"1\\"}', b"{1},"],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not an array"):
        array_items(text)
