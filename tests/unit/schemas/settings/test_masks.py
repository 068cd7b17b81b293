"""Masks as the configuration writes them."""

from __future__ import annotations

import pytest

from schemas.settings.masks import Mask, check_hash_key, check_masks, read_mask


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("hash", Mask("hash")),
        ("null", Mask("null")),
        ("truncate(3)", Mask("truncate", 3)),
        ("truncate( 0 )", Mask("truncate", 0)),
    ],
)
def test_a_mask_is_read(text: str, mask: Mask) -> None:
    assert read_mask(text) == mask


@pytest.mark.parametrize(
    "text", ["", "HASH", "hash(3)", "truncate", "truncate()", "truncate(-1)", "truncate(1)x", "md5"]
)
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="is no mask") as caught:
        read_mask(text)

    assert "truncate(n)" in caught.value.args[1]


def test_a_refusal_names_the_column() -> None:
    with pytest.raises(ValueError, match=r"s\.public\.t\.a: 'sha' is no mask"):
        check_masks({"s.public.t.b": "null", "s.public.t.a": "sha"})


def test_a_name_must_have_the_parts_of_a_column() -> None:
    with pytest.raises(ValueError, match="does not name a column"):
        check_masks({"public.t.a": "null"})


def test_a_short_key_is_refused_without_being_shown() -> None:
    check_hash_key(None)
    check_hash_key("k" * 32)
    with pytest.raises(ValueError, match="32 bytes") as caught:
        check_hash_key("letmein")

    assert "letmein" not in str(caught.value.args)
