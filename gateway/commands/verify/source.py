"""Reader of the source's tables, filtered by the server, without a long transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from gateway.copy import Key, Snapshot
from gateway.copy.lines import CopyRow, split_copy_line
from gateway.core.closing import Closing
from gateway.core.lsn import Lsn, parse_lsn
from gateway.definitions.model import FilterClause, Table
from gateway.source.copy.key_columns import KeyColumn, among, compared, listed, sorted_columns
from gateway.source.copy.relation_guard import check_name, lock
from gateway.source.session.connection import SESSION_SETTINGS, connect
from gateway.source.session.server_errors import classify_server_error

__all__ = ["SourceReader", "SourceTable", "Wanted"]

Wanted: TypeAlias = Sequence[Sequence[str]] | Callable[[CopyRow], bool]
"""Keys of the rows to read, or whether a row is wanted."""

_SETTINGS: Final = {**SESSION_SETTINGS, "standard_conforming_strings": "on"}
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_KEYS_A_QUERY: Final = 1000
_SNAPSHOT: Final = """
    SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_is_in_recovery()"""
_REPLAYED: Final = "SELECT pg_catalog.pg_last_wal_replay_lsn()::pg_catalog.text"
_INSERTED: Final = "SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text"
_WRITE_OUT: Final = "SELECT pg_catalog.pg_logical_emit_message(true, 'pgsluice', '')"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Rows and columns to read of a table.

    Attributes:
        filters: Filters, one of which must be true; empty for all rows.
        columns: Columns, in order.
        key: Key columns; if empty, all rows are read at once.
    """

    table: Table
    filters: tuple[FilterClause, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]


class SourceReader(Closing):
    """A connection to the source.

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

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def position(self) -> Lsn:
        """Return the end of everything visible so far, which the walsender then knows.

        Raises:
            GatewayError: the connection is gone.
        """
        (in_recovery,) = self._one("SELECT pg_catalog.pg_is_in_recovery()")
        if in_recovery:
            return Lsn(parse_lsn(self._one(_REPLAYED)[0]) + 1)
        (text,) = self._one(_INSERTED)
        # An idle server does not write out the WAL's buffers soon.
        self._one(_WRITE_OUT)
        return parse_lsn(text)

    def rows(self, source: SourceTable) -> Iterator[CopyRow]:
        """Yield all rows that pass the filters, each chunk in a transaction of its own.

        Raises:
            GatewayError: they cannot be read.
        """
        key = self._key(source)
        after: Key | None = None
        while True:
            self._execute(_BEGIN)
            self._lock(source)
            last = self._last(source, key, after)
            yield from self._copy(source, _between(key, after, last))
            self._commit(source)
            if last is None:
                return
            after = last

    def snapshot_rows(self, source: SourceTable) -> tuple[Snapshot, Iterator[CopyRow]]:
        """Yield all rows under one snapshot; its transaction ends with the last row.

        Raises:
            GatewayError: they cannot be read.
        """
        snapshot = self._begin()

        def rows() -> Iterator[CopyRow]:
            self._lock(source)
            yield from self._copy(source, sql.SQL(""))
            self._commit(source)

        return snapshot, rows()

    def keyed_rows(
        self, wanted: Iterable[tuple[SourceTable, Wanted]]
    ) -> tuple[Snapshot, list[list[CopyRow]]]:
        """Return the wanted rows of some tables, all under one snapshot.

        A predicate takes a read of the whole table: keys that are masked cannot be asked for.

        Raises:
            GatewayError: they cannot be read.
        """
        found = []
        wanted = list(wanted)
        snapshot = self._begin()
        for source, keys in wanted:
            key = self._key(source)
            self._lock(source)
            if callable(keys):
                found.append([row for row in self._copy(source, sql.SQL("")) if keys(row)])
                continue
            rows: list[CopyRow] = []
            for begin in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[begin : begin + _KEYS_A_QUERY]
                placed = [tuple(value.encode() for value in one) for one in part]
                rows += self._copy(source, _where([among(key, placed)]))
            found.append(rows)
        self._commit(*(source for source, _ in wanted))
        return snapshot, found

    def _begin(self) -> Snapshot:
        self._execute(_BEGIN)
        text, in_recovery = self._one(_SNAPSHOT)
        return Snapshot.parse(text, in_recovery=in_recovery)

    def _lock(self, source: SourceTable) -> None:
        try:
            lock(self._connection, source.table)
        except psycopg.Error as error:
            raise self._failure(error, f"reading {source.table}") from None

    def _commit(self, *sources: SourceTable) -> None:
        """End the transaction, after a check that the name was the table's: the lock keeps it."""
        try:
            for source in sources:
                check_name(self._connection, source.table)
        except psycopg.Error as error:
            raise self._failure(error, "reading the source") from None
        self._execute("COMMIT")

    def _key(self, source: SourceTable) -> list[KeyColumn]:
        """Return the key's columns, in the order of its index."""
        try:
            return sorted_columns(self._connection, source.table, source.key)
        except psycopg.Error as error:
            raise self._failure(error, f"reading {source.table}") from None

    def _last(self, source: SourceTable, key: Sequence[KeyColumn], after: Key | None) -> Key | None:
        """Return the greatest key of the next chunk; None for the last one."""
        columns = sql.SQL(", ").join(sql.Identifier(name) for name in source.key)
        query = sql.SQL("SELECT {} FROM {}{} ORDER BY {} OFFSET {} LIMIT 1").format(
            columns,
            _from(source),
            _between(key, after, None),
            listed(key),
            sql.Literal(self._chunk_rows - 1),
        )
        # By COPY: a cast to text can be one that the type's owner has made.
        found = list(self._lines(sql.SQL("COPY ({}) TO STDOUT").format(query), source))
        return tuple(text or b"" for text in found[0]) if found and key else None

    def _copy(self, source: SourceTable, where: sql.Composable) -> Iterator[CopyRow]:
        passes = sql.SQL(" OR ").join(sql.SQL(f"({one.text})") for one in source.filters)
        rows = sql.SQL("{}{}").format(_from(source), where)
        if source.filters:
            joint = " AND " if where.as_string(self._connection) else " WHERE "
            rows = sql.SQL("{}{}({})").format(rows, sql.SQL(joint), passes)
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            sql.SQL(", ").join(map(sql.Identifier, source.columns)), rows
        )
        yield from self._lines(statement, source)

    def _lines(self, statement: sql.Composed, source: SourceTable) -> Iterator[CopyRow]:
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


def _between(key: Sequence[KeyColumn], after: Key | None, last: Key | None) -> sql.Composable:
    bounds = ((">", after), ("<=", last))
    return _where([compared(key, sign, bound) for sign, bound in bounds if bound is not None])


def _where(terms: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(terms)) if terms else sql.SQL("")
