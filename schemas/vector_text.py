"""Texts of pgvector's types: the items of a vector, and the parts of a sparse one.

Source: vector_out in vector.c, halfvec_out in halfvec.c, sparsevec_out in sparsevec.c.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["sparsevec_parts", "vector_items"]

_ITEMS: Final = re.compile(rb"\[([^\[\],\s]++(?:,[^\[\],\s]++)*+)\]")
_SPARSE: Final = re.compile(rb"\{((?:\d++:[^{},:\s]++(?:,|(?=\})))*+)\}/(\d++)")


def vector_items(text: bytes) -> list[bytes]:
    """Return the items of a vector or a halfvec.

    Raises:
        ValueError: pgvector does not print such text.
    """
    if (found := _ITEMS.fullmatch(text)) is None:
        raise ValueError("not a vector")
    return found[1].split(b",")


def sparsevec_parts(text: bytes) -> tuple[int, list[int], list[bytes]]:
    """Return the number of dimensions, the indices, from 1 on, and their values.

    Raises:
        ValueError: pgvector does not print such text.
    """
    if (found := _SPARSE.fullmatch(text)) is None or found[1].endswith(b","):
        raise ValueError("not a sparse vector")
    pairs = [pair.split(b":") for pair in found[1].split(b",") if pair]
    return int(found[2]), [int(index) for index, _ in pairs], [value for _, value in pairs]
