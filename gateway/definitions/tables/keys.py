"""Keys of published tables. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from gateway.definitions.model import Table
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = ["KeyColumns", "key_of"]

KeyColumns: TypeAlias = tuple[str, ...] | None
"""Names of the key columns in table order, ``()`` for the whole row, None for no key."""


def key_of(table: Table, published: Collection[str]) -> KeyColumns:
    """Return the key of `table` when the columns `published` are published.

    The key is the replica identity; under FULL, the primary key or, without one, the whole row.
    There is no key under NOTHING or without a usable identity. A column list may omit part of the
    key if neither UPDATE nor DELETE is published; the key is then the whole row under FULL, and
    otherwise missing.
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
