"""Signatures of a table's record keys and partitions, which change when those of rows do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.definitions.model import Column
from gateway.definitions.tables.keys import KeyColumns
from schemas.settings.tables import ChosenColumns

__all__ = ["chosen_signature", "key_signature"]

# int2, int4, int8; float4, float8; varchar, text
_SAME_KEYS: Final = {21: 20, 23: 20, 20: 20, 700: 701, 701: 701, 1043: 25, 25: 25}


def key_signature(columns: Iterable[Column], key: KeyColumns) -> list[str] | None:
    """Return a signature that changes whenever the record keys of rows change.

    A type that only becomes wider leaves the keys unchanged.

    Args:
        columns: Columns, including those of the key.
        key: Key as returned by `gateway.definitions.tables.keys.key_of`.
    """
    if key is None:
        return None
    types = {column.name: column.base_type_oid for column in columns}
    return [f"{name} {_SAME_KEYS.get(types[name], types[name])}" for name in key]


def chosen_signature(
    columns: Iterable[Column], chosen: ChosenColumns
) -> list[list[str] | None] | None:
    """Return the signatures of the columns that are chosen, None if none are.

    Args:
        columns: Columns of the table.
        chosen: Columns chosen for the record key and the partition.
    """
    known = {column.name: column for column in columns}
    signatures = [
        # A table that lacks one of them is held.
        key_signature(known.values(), tuple(name for name in names if name in known))
        for names in (chosen.key, chosen.partition)
    ]
    return signatures if any(signatures) else None
