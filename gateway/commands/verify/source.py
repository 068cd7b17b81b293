"""Read the source's tables, filtered by the server, without a long transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import psycopg
from psycopg import sql

from gateway.copy import Snapshot
from gateway.copy.lines import CopyRow, split_copy_line
from gateway.definitions.model import FilterClause, Table
from gateway.lsn import Lsn, parse_lsn
from gateway.source.connection import SESSION_SETTINGS, classify_server_error, connect

__all__ = ["SourceReader", "SourceTable"]

_SETTINGS: Final = {
    **SESSION_SETTINGS,
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "row_security": "off",
}
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_KEYS_A_QUERY: Final = 1000
_KEY_TYPES: Final = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = %s AND attname = ANY (%s) AND NOT attisdropped"""
# An index in whose order the chunks come, so that none needs to be sorted.
_INDEX: Final = """
    SELECT array_agg(a.attname ORDER BY k.nr)
    FROM pg_index AS i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, nr)
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s AND k.nr <= i.indnkeyatts AND i.indisvalid AND i.indisunique
        AND i.indpred IS NULL
    GROUP BY i.indexrelid ORDER BY i.indexrelid"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """What is read of a table.

    Attributes:
        filters: Of which one must be true; empty: all rows are wanted.
        columns: Which, in which order.
        key: Those of the key; empty: all rows are read at once.
    """

    table: Table
    filters: tuple[FilterClause, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]


class SourceReader:
    """A connection to the source. Close it.

    Raises:
        TransientError: the server cannot be reached.
        FatalError: the server refuses the role.
    """

    def __init__(self, dsn: str, chunk_rows: int) -> None:
        self._connection = connect(
            dsn,
            application_name="pgsluice verify",
            settings=_SETTINGS,
            statement_timeout_s=0,
            lock_timeout_s=60,
        )
        self._chunk_rows = chunk_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def position(self) -> Lsn:
        """The end of everything that could be seen up to now, made known to the walsender.

        Raises:
            GatewayError: the connection is gone.
        """
        (in_recovery,) = self._one("SELECT pg_is_in_recovery()")
        if in_recovery:
            return Lsn(parse_lsn(self._one("SELECT pg_last_wal_replay_lsn()::text")[0]) + 1)
        (text,) = self._one("SELECT pg_current_wal_insert_lsn()::text")
        # On an idle server nobody is in a hurry to write out what is in the WAL's buffers.
        self._one("SELECT pg_logical_emit_message(true, 'pgsluice', '')::text")
        return parse_lsn(text)

    def rows(self, source: SourceTable) -> Iterator[CopyRow]:
        """All rows that pass the filters: each chunk in a transaction of its own.

        Raises:
            GatewayError: they cannot be read.
        """
        key = self._key(source)
        after: Sequence[str] | None = None
        while True:
            self._execute(_BEGIN)
            last = self._last(source, key, after)
            yield from self._copy(source, _between(key, after, last))
            self._execute("COMMIT")
            if last is None:
                return
            after = last

    def snapshot_rows(self, source: SourceTable) -> tuple[Snapshot, Iterator[CopyRow]]:
        """All rows under one snapshot; its transaction ends with the last row.

        Raises:
            GatewayError: they cannot be read.
        """
        snapshot = self._begin()

        def rows() -> Iterator[CopyRow]:
            yield from self._copy(source, sql.SQL(""))
            self._execute("COMMIT")

        return snapshot, rows()

    def keyed_rows(
        self, wanted: Iterable[tuple[SourceTable, Sequence[Sequence[str]]]]
    ) -> tuple[Snapshot, list[list[CopyRow]]]:
        """The rows of some keys of some tables, all under one snapshot.

        Raises:
            GatewayError: they cannot be read.
        """
        found = []
        snapshot = self._begin()
        for source, keys in wanted:
            key = self._key(source)
            rows: list[CopyRow] = []
            for begin in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[begin : begin + _KEYS_A_QUERY]
                placed = [_in_order(one, source.key, key) for one in part]
                rows += self._copy(source, _among(key, placed))
            found.append(rows)
        self._execute("COMMIT")
        return snapshot, found

    def _begin(self) -> Snapshot:
        self._execute(_BEGIN)
        text, in_recovery = self._one("SELECT pg_current_snapshot()::text, pg_is_in_recovery()")
        return Snapshot.parse(text, in_recovery=in_recovery)

    def _key(self, source: SourceTable) -> list[tuple[str, str]]:
        """Names and types of the key's columns, in the order of its index."""
        types = dict(self._all(_KEY_TYPES, [source.table.oid, list(source.key)]))
        indexes = [list(names) for (names,) in self._all(_INDEX, [source.table.oid])]
        names = next((one for one in indexes if set(one) == set(source.key)), source.key)
        return [(name, types[name]) for name in names]

    def _last(
        self, source: SourceTable, key: Sequence[tuple[str, str]], after: Sequence[str] | None
    ) -> Sequence[str] | None:
        """The greatest key of the next chunk; None when it is the last one."""
        # Without the table's name, a column's text would be meant, which has another order.
        name = source.table.name
        listed = sql.SQL(", ").join(sql.Identifier(name, column) for column, _ in key)
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(n)) for n, _ in key)
        query = sql.SQL("SELECT {} FROM {}{} ORDER BY {} OFFSET {} LIMIT 1").format(
            texts, _from(source), _between(key, after, None), listed, self._chunk_rows - 1
        )
        found = self._all(query.as_string(self._connection))
        return found[0] if found else None

    def _copy(self, source: SourceTable, where: sql.Composable) -> Iterator[CopyRow]:
        passes = sql.SQL(" OR ").join(sql.SQL(f"({one.text})") for one in source.filters)
        rows = sql.SQL("{}{}").format(_from(source), where)
        if source.filters:
            joint = " AND " if where.as_string(self._connection) else " WHERE "
            rows = sql.SQL("{}{}({})").format(rows, sql.SQL(joint), passes)
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            sql.SQL(", ").join(map(sql.Identifier, source.columns)), rows
        )
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for line in copy:
                    yield split_copy_line(bytes(line)[:-1])
        except psycopg.Error as error:
            raise self._failure(error, f"reading {source.table}") from None

    def _execute(self, statement: str) -> None:
        try:
            self._connection.execute(statement.encode())
        except psycopg.Error as error:
            raise self._failure(error, "reading the source") from None

    def _all(self, query: str, parameters: Any = None) -> list[Any]:
        try:
            return self._connection.execute(query.encode(), parameters).fetchall()
        except psycopg.Error as error:
            raise self._failure(error, "reading the source") from None

    def _one(self, query: str) -> Any:
        return self._all(query)[0]

    def _failure(self, error: psycopg.Error, doing: str) -> Exception:
        text = error.diag.message_primary or str(error)
        return classify_server_error(error.sqlstate, text, doing=doing)


def _from(source: SourceTable) -> sql.Composable:
    return sql.SQL("{}{}").format(
        sql.SQL("" if source.table.kind == "p" else "ONLY "),
        sql.Identifier(source.table.schema, source.table.name),
    )


def _in_order(
    one: Sequence[str], names: Sequence[str], key: Sequence[tuple[str, str]]
) -> list[str]:
    by_name = dict(zip(names, one, strict=True))
    return [by_name[name] for name, _ in key]


def _values(key: Sequence[tuple[str, str]], values: Sequence[str]) -> sql.Composable:
    return sql.SQL("({})").format(
        sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(kind))
            for (_, kind), value in zip(key, values, strict=True)
        )
    )


def _columns(key: Sequence[tuple[str, str]]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(", ").join(sql.Identifier(name) for name, _ in key))


def _between(
    key: Sequence[tuple[str, str]], after: Sequence[str] | None, last: Sequence[str] | None
) -> sql.Composable:
    terms = [
        sql.SQL("{} {} {}").format(_columns(key), sql.SQL(sign), _values(key, bound))
        for sign, bound in ((">", after), ("<=", last))
        if bound is not None
    ]
    return sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(terms)) if terms else sql.SQL("")


def _among(key: Sequence[tuple[str, str]], keys: Sequence[Sequence[str]]) -> sql.Composable:
    listed = sql.SQL(", ").join(_values(key, one) for one in keys)
    return sql.SQL(" WHERE {} IN ({})").format(_columns(key), listed)
