"""Masked columns: the values published in place of theirs, and their descriptions.

A tuple is masked after its filters have seen it and before anything of it is encoded, so that key,
partition, old and new row, tombstone and error record all come from masked values. A hash is taken
of the canonical form of a key: values that are equal for PostgreSQL have one hash, in whichever
format and however many zeros they were sent.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from gateway.core.errors import ValueFormatError
from gateway.definitions.model import Column, Masks
from gateway.envelope.canonical import KEY_FORMS
from gateway.pgoutput.messages import BinaryValue, ColumnValue
from schemas.settings.masks import Mask
from schemas.types import of_column

__all__ = ["RowMask", "masked_columns", "row_mask"]

MaskValue: TypeAlias = Callable[[bytes], bytes]
RowMask: TypeAlias = Callable[[Sequence[ColumnValue]], Sequence[ColumnValue]]
"""Tuple -> the same with masked values. NULL stays, and so does UNCHANGED, unless by ``null``."""

_TEXT: Final = 25
_BPCHAR: Final = 1042
_HIDDEN: Final = BinaryValue(b"")
"""In place of a value in binary format, which every encoder refuses."""


def row_mask(
    columns: Sequence[Column], indexes: Sequence[int], masks: Masks, hash_key: bytes
) -> RowMask:
    """Return the mask of tuples.

    Args:
        columns: Published columns, as the source has them.
        indexes: For each of them, its position in the tuples.
        masks: Masks of some of the columns.
        hash_key: Key of ``hash``.

    Raises:
        ValueError: a mask hashes, and the key is empty.
    """
    named = dict(masks)
    placed = [
        (index, column, named[column.name])
        for column, index in zip(columns, indexes, strict=True)
        if column.name in named
    ]
    nulls = [index for index, _, mask in placed if _is_null(mask)]
    steps = [
        (index, _mask_value(mask, column, hash_key))
        for index, column, mask in placed
        if not _is_null(mask)
    ]

    def mask(row: Sequence[ColumnValue]) -> Sequence[ColumnValue]:
        result = list(row)
        for index, mask_value in steps:
            value = result[index]
            if type(value) is bytes:
                result[index] = mask_value(value)
            elif type(value) is BinaryValue:
                result[index] = _HIDDEN
        for index in nulls:
            result[index] = None  # whether or not the value was sent
        return result

    return mask


def masked_columns(columns: Sequence[Column], masks: Masks, hash_key: bytes) -> tuple[Column, ...]:
    """Describe columns as they are published: a hash and a truncated text are of type text.

    The value of a column in rows that are older than it is masked as any other.
    """
    named = dict(masks)
    return tuple(
        _described(column, named[column.name], hash_key) if column.name in named else column
        for column in columns
    )


def _described(column: Column, mask: Mask, hash_key: bytes) -> Column:
    if _is_null(mask):
        return replace(column, missing=None, computed=False, labels=())
    missing = column.missing
    if missing is not None:
        missing = _mask_value(mask, column, hash_key)(missing.encode()).decode()
    return replace(
        column,
        type_oid=_TEXT,
        type_modifier=-1,
        type_name="text",
        base_type_oid=_TEXT,
        base_type_modifier=-1,
        type_kind="b",
        missing=missing,
        element=None,
        base_type_name="",
        labels=(),
    )


def _is_null(mask: Mask) -> bool:
    return mask.kind == "null"


def _mask_value(mask: Mask, column: Column, hash_key: bytes) -> MaskValue:
    """Return the mask of a column's values, which are in text format; it raises for none of them.

    Raises:
        ValueError: it hashes, and the key is empty.
    """
    if mask.kind == "hash" and not hash_key:
        raise ValueError("a hash without a key hides nothing")
    canonical = KEY_FORMS[of_column(column.base_type_oid, column.base_name).key]

    def hashed(text: bytes) -> bytes:
        if canonical is not None:
            with suppress(ValueError, ValueFormatError):  # then it is hashed as it was sent
                text = canonical(text)
        return hmac.digest(hash_key, text, "sha256").hex().encode()

    def truncated(text: bytes) -> bytes:
        # As left(value::text, n), which leaves out the blanks at the end of a char(n).
        shown = text.rstrip(b" ") if column.base_type_oid == _BPCHAR else text
        characters = shown.decode(errors="surrogateescape")[: mask.length]
        return characters.encode(errors="surrogateescape")

    return hashed if mask.kind == "hash" else truncated
