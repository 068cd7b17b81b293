"""The columns of a table's key as its index has them: order, collation, type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from gateway.copy import Key
from gateway.definitions.model import Table
from gateway.source.chunk_errors import TableAltered

__all__ = ["KeyColumn", "key_columns"]

_KEY_INDEXES: Final = """
    SELECT i.indexrelid, a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN k.collation_oid <> a.attcollation
            THEN quote_ident(n.nspname) || '.' || quote_ident(c.collname) END
    FROM pg_index AS i
    CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[])
        WITH ORDINALITY AS k (attnum, collation_oid, nr)
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    LEFT JOIN pg_collation AS c ON c.oid = k.collation_oid
    LEFT JOIN pg_namespace AS n ON n.oid = c.collnamespace
    WHERE i.indrelid = %s AND k.nr <= i.indnkeyatts AND (i.indisprimary OR i.indisreplident)
        AND i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL
    ORDER BY i.indisprimary, i.indexrelid, k.nr"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key's index; `at` is its place in the key."""

    at: int
    expression: sql.Composable
    type_name: str

    def literal(self, key: Key) -> sql.Composable:
        """The value that `key` has here."""
        return sql.SQL("{}::{}").format(
            sql.Literal(key[self.at].decode()),
            sql.SQL(self.type_name),
        )


def key_columns(
    connection: psycopg.Connection, table: Table, key: Sequence[str]
) -> list[KeyColumn]:
    """Look up the index that a key has.

    Raises:
        TableAltered: there is none any more.
    """
    indexes: dict[int, list[tuple[str, str, str | None]]] = {}
    for index, *column in connection.execute(_KEY_INDEXES, [table.oid]):
        indexes.setdefault(index, []).append((column[0], column[1], column[2]))
    found = next(
        (c for c in indexes.values() if sorted(n for n, _, _ in c) == sorted(key)),
        None,
    )
    if found is None:
        raise TableAltered(f"copying {table}: its key's index is not there any more")
    return [
        KeyColumn(
            key.index(name),
            sql.SQL("{}{}").format(
                sql.Identifier(name),
                sql.SQL("" if collation is None else f" COLLATE {collation}"),
            ),
            type_name,
        )
        for name, type_name, collation in found
    ]
