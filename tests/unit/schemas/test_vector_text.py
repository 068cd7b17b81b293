"""The parts of vectors as pgvector prints them."""

from __future__ import annotations

import pytest

from schemas.vector_text import sparsevec_parts, vector_items


def test_items_are_numbers_as_they_are_printed() -> None:
    assert vector_items(b"[1,-0.5,3.4e+38]") == [b"1", b"-0.5", b"3.4e+38"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"{}/3", (3, [], [])),
        (b"{1:0.5}/3", (3, [1], [b"0.5"])),
        (b"{2:-1,1000000000:2}/1000000000", (10**9, [2, 10**9], [b"-1", b"2"])),
    ],
)
def test_parts_of_a_sparse_vector(text: bytes, parts: tuple[int, list[int], list[bytes]]) -> None:
    assert sparsevec_parts(text) == parts


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"[1", b"1]", b"[1,]", b"[,1]", b"[1, 2]", b"{1}", b"[[1]]"]
)
def test_other_text_is_no_vector(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a vector"):
        vector_items(text)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"{1:2}", b"{1:2,}/3", b"{,}/3", b"{1}/3", b"{:1}/3", b"{1:}/3", b"[1]/1"]
)
def test_other_text_is_no_sparse_vector(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a sparse vector"):
        sparsevec_parts(text)
