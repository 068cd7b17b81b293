"""The pairs of hstores as the extension prints them."""

from __future__ import annotations

import pytest

from schemas.hstore_text import hstore_pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"", []),
        (b'"a"=>"1"', [(b"a", b"1")]),
        (b'""=>"", "b"=>NULL, "NULL"=>"NULL"', [(b"", b""), (b"b", None), (b"NULL", b"NULL")]),
        (b'"a\\"=>b"=>"c\\\\, \\"d"', [(b'a"=>b', b'c\\, "d')]),
    ],
)
def test_pairs_are_in_the_order_of_the_text(
    text: bytes, pairs: list[tuple[bytes, bytes | None]]
) -> None:
    assert list(hstore_pairs(text)) == pairs


@pytest.mark.parametrize(
    "text",
    [b" ", b"a=>1", b'"a"=>1', b'"a"=>"1",', b'"a"=>"1", ', b'"a"=>"1","b"=>"2"', b'"a"', b'"a"=>',
     b'"a"=>null', b'"a"=>"1"x', b'"a"=>"1\\"', b', "a"=>"1"'],
)  # fmt: skip
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="not an hstore"):
        list(hstore_pairs(text))


def test_no_more_of_a_text_is_read_than_is_wanted() -> None:
    assert next(hstore_pairs(b'"a"=>"1", and no hstore')) == (b"a", b"1")
