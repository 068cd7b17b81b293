"""Keys of published tables: which columns tell the rows of a table apart. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from gateway.definitions.model import Table
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = ["KeyColumns", "key_of"]

KeyColumns: TypeAlias = tuple[str, ...] | None
"""Names of the key's columns in table order, ``()`` for the whole row, None for no key."""


def key_of(table: Table, published: Collection[str]) -> KeyColumns:
    """Say what the key of `table` is when the columns `published` are published.

    The replica identity columns; under FULL the primary key, else the whole row. There is none
    under NOTHING and without a usable identity. A column list may leave out a part of it when
    neither UPDATE nor DELETE is published: then there is none either, under FULL the whole row.
    """
    match table.replica_identity:
        case ReplicaIdentity.NOTHING:
            return None
        case ReplicaIdentity.FULL:
            complete = table.primary_key and set(table.primary_key) <= set(published)
            return table.primary_key if complete else ()
        case _:
            complete = table.identity and set(table.identity) <= set(published)
            return table.identity if complete else None
