"""Reader of a table in chunks, each in a short transaction of its own.

Values come by COPY in text format from a session with the walsender's settings, so they are byte
for byte what the stream has for the same values.

A range is asked for by the key's index: ``(k1, k2) > (...) ORDER BY k1, k2 LIMIT n`` in the index's
order of columns and under its collations, so that any type and collation works, and the server
finds the rows without sorting. Key values go back to the server as the text that it gave.

A condition can narrow the read. The server may evaluate it on any row, also outside the range, so
that it can fail on a row that would not be returned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import psycopg
from psycopg import pq, sql

from gateway.copy import Chunk, ChunkRequest, CopiedRow, Key, Snapshot
from gateway.copy.lines import key_of_line, split_copy_line
from gateway.core.background import OnWait, keep_waiting
from gateway.core.closing import Closing
from gateway.core.errors import GatewayError, TransientError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.definitions.model import Table
from gateway.source.copy import queries as narrowing
from gateway.source.copy.copy_out import copy_lines
from gateway.source.copy.errors import (
    ConditionError,
    TableChanged,
    TableGone,
    check_shape,
    copy_error,
)
from gateway.source.copy.key_columns import (
    KeyColumn,
    KnownTypes,
    among,
    compared,
    key_columns,
    listed,
)
from gateway.source.copy.relation_guard import check_name, guarded, lock
from gateway.source.session.blockers import Wait, session_name, waits
from gateway.source.session.connection import SESSION_SETTINGS, connect
from gateway.source.session.server_errors import classify_server_error
from gateway.source.session.session import DEFAULT_SILENCE_S

__all__ = ["ChunkReader", "ChunkSource", "ConditionError", "TableChanged", "TableGone"]

_SETTINGS: Final = {**SESSION_SETTINGS, "standard_conforming_strings": "on"}

_WORTH: Final = 0.5
"""Largest part of the rows for which a read is narrowed: the border of a range has a cost, too."""

# A table gets another file after a rewrite or TRUNCATE, so that its name identifies the rows.
_SHAPE: Final = """
    ARRAY(SELECT pg_catalog.concat_ws(',', a.attnum, a.atttypid, a.atttypmod, a.attname)
        FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
    ARRAY(SELECT pg_catalog.concat_ws(',', c.oid, c.relfilenode)
        FROM pg_catalog.pg_class AS c WHERE c.oid = ANY (%(files)s::pg_catalog.oid[])
        ORDER BY c.oid)"""

_SNAPSHOT: Final = """
    SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_is_in_recovery()"""

_BEFORE: Final = f"{_SNAPSHOT}, {_SHAPE}"

_AFTER: Final = f"""
    SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END::pg_catalog.text, {_SHAPE}"""


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """Rows and columns to read of a table.

    Attributes:
        columns: Columns in their order; may be empty without a key.
        key: Key columns among them, in the table's order; empty if all rows are one chunk.
        where: Condition that the rows of a range fulfil, or empty.
        slices: A further one, which is the gateway's own and runs no code of other roles
            (`gateway.subselects.moves.conditions`), or empty.
        narrow: Filters, on `columns`, of which one is true for every row of a range that anybody
            wants; empty: all are wanted. Only with a key.
        by_key: Whether they read nothing but the key.
        masked: Whether a subscription masks columns of the table.
    """

    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    where: str = ""
    narrow: tuple[str, ...] = ()
    by_key: bool = True
    masked: bool = False
    slices: str = ""

    def __post_init__(self) -> None:
        assert set(self.key) <= set(self.columns)
        assert self.key or not self.narrow

    @property
    def key_positions(self) -> tuple[int, ...]:
        """Positions of the key columns in a row."""
        return tuple(self.columns.index(name) for name in self.key)

    def error(self, error: psycopg.Error, *, conditions: bool) -> GatewayError:
        """Convert an error of the server while the rows are read, see `copy_error`."""
        hidden = self.masked or bool(self.slices)  # the server's text may quote a value
        return copy_error(error, self.table, conditions=conditions, masked=hidden)


class ChunkReader(Closing):
    """A connection that reads chunks. Not thread-safe.

    Args:
        dsn: As the user gave it.
        slot: Slot of the gateway, used in the name of the session.
        on_wait: See `gateway.source.session.connection.connect`.
        spool_directory: Directory for rows without a key; None for the system's temporary
            directory.
        lock_timeout_s: Longest wait for a table that another session has locked; other tables are
            read then.
        silence_s: Seconds of silence after which the server is asked over another connection
            whether it is still at work.

    Attributes:
        rows: Number of rows of the last chunk.
        bytes: Their size as COPY writes them.

    Raises:
        TransientError: the server cannot be reached.
        FatalError: the server refuses the role.
    """

    def __init__(
        self,
        dsn: str,
        *,
        slot: str = "",
        on_wait: OnWait = keep_waiting,
        spool_directory: Path | None = None,
        lock_timeout_s: float = 5.0,
        silence_s: float = DEFAULT_SILENCE_S,
    ) -> None:
        self._dsn = dsn
        self._slot = slot
        self._on_wait = on_wait
        self.rows = 0
        self.bytes = 0
        self._spool_directory = spool_directory
        self._keys: dict[tuple[Table, tuple[str, ...]], list[KeyColumn]] = {}
        self._known_types: KnownTypes = {}
        self._looked_at: set[ChunkSource] = set()
        self._connection = connect(
            dsn,
            application_name=session_name("copy", slot),
            settings=_SETTINGS,
            statement_timeout_s=0,
            lock_timeout_s=lock_timeout_s,
            on_wait=on_wait,
        )
        self._connection.silence_s = silence_s
        self._connection.is_at_work = self._is_at_work

    def snapshot(self) -> Snapshot:
        """Return the current snapshot.

        Raises:
            TransientError: the connection is gone.
        """
        row = self._row(_SNAPSHOT, "looking")
        return Snapshot.parse(row[0], in_recovery=row[1])

    def new_xid(self) -> int | None:
        """Return the 64-bit id of a transaction that has begun and ended; None on a standby.

        It writes nothing, so its end waits for no synchronous standby.

        Raises:
            AccessError: no right to do so.
            FatalError: the server gives no ids any more.
            TransientError: the connection is gone.
        """
        if self._row("SELECT pg_catalog.pg_is_in_recovery()", "looking")[0]:
            return None
        query = "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8"
        return int(self._row(query, "beginning a transaction")[0])

    def wait_for(self, before: int | None) -> None:
        """Show others that the copy waits for transactions before this 64-bit id; None for none.

        Raises:
            TransientError: the connection is gone.
        """
        name = session_name("copy", self._slot, before=before)
        self._row("SELECT pg_catalog.set_config('application_name', %s, false)", "waiting", [name])

    def awaited(self) -> Wait | None:
        """Return the transactions for which the copies of this slot wait, if the server shows them.

        Raises:
            TransientError: the connection is gone.
        """
        found = waits(self._connection, self._slot)
        return next((wait for wait in found if wait.task == "copy"), None)

    def flush(self) -> None:
        """Make the server write its WAL out, so that the walsender gets to the insert position.

        A transaction that has not ended can leave records that are not written out soon.
        """
        if not self._row("SELECT pg_catalog.pg_is_in_recovery()", "looking")[0]:
            doing = "writing a message to the WAL"
            self._row("SELECT pg_catalog.pg_logical_emit_message(true, 'pgsluice', '')", doing)

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        """Read the next `limit` rows of the key, and the rows of the keys asked for.

        Raises:
            ConditionError: the server cannot evaluate the condition of `source`, or a filter by
                which it is narrowed.
            TableChanged: its columns are not those that `source` knows, or it is gone.
            TableLocked: it stayed locked.
            TransientError: the connection is gone, or the table was rewritten or truncated
                meanwhile.
            FatalError: no right to read the table, or row security.
        """
        table = source.table
        about = {"oid": table.oid, "files": [table.oid, *table.leaves]}
        doing = f"copying {table}"
        self.rows = self.bytes = 0
        try:
            self._end_transaction()
            self._refuse_foreign_code(source)
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            lock(self._connection, table)
            text, in_recovery, shape, files = self._row(_BEFORE, doing, about)
            check_shape(table, shape)
            skipped = 0
            if source.key:
                rows: Iterable[CopiedRow]
                rows, last, size, skipped = self._read_keyed(source, request, limit)
                end = not request.ranged or (request.last is None and size + skipped < limit)
            else:
                rows, last, end = self._spool(source), None, True
                size = self.rows
            check_name(self._connection, table)  # the lock of the reading keeps it
            self._connection.execute("COMMIT")
            insert_lsn, shape, files_now = self._row(_AFTER, doing, about)
        except psycopg.Error as error:
            raise source.error(error, conditions=bool(source.where or source.narrow)) from None
        check_shape(table, shape)
        if files != files_now:
            # Rewritten or truncated, a table looks empty to an older snapshot.
            # Source: PostgreSQL manual, "MVCC Caveats".
            raise TransientError(f"{doing}: it was rewritten or truncated while a chunk was read")
        snapshot = Snapshot.parse(text, in_recovery=in_recovery)
        # On a standby the position may still be that of a commit that is already visible.
        position = Lsn(parse_lsn(insert_lsn) + (1 if in_recovery else 0))
        by_key = source.by_key or not (source.narrow and request.ranged)
        return Chunk(request, rows, snapshot, position, last, end, size, skipped, by_key)

    def border(self, source: ChunkSource, request: ChunkRequest, limit: int) -> ChunkRequest:
        """Return `request` with the last key of the next `limit` rows, None where none are left.

        Raises:
            ConditionError, TableChanged, TableLocked, TransientError, FatalError: see `read`.
        """
        try:
            self._end_transaction()
            self._refuse_foreign_code(source)
            columns, where = self._key_columns(source), self._beyond(source, request)
            with guarded(self._connection, source.table):
                last, rows = self._border(source, listed(columns), where, limit)
        except psycopg.Error as error:
            raise source.error(error, conditions=bool(source.where)) from None
        return replace(request, last=last, rows=rows)

    def narrows(self, source: ChunkSource) -> bool:
        """Whether the server expects `narrow` to leave out enough rows to be worth its evaluation.

        Raises:
            TableLocked: it stayed locked.
            TransientError: the connection is gone.
        """
        try:
            self._end_transaction()
            with guarded(self._connection, source.table):
                wanted, every = [
                    self._connection.execute(
                        sql.SQL("EXPLAIN (FORMAT JSON) {}").format(query)
                    ).fetchall()[0][0][0]["Plan"]["Plan Rows"]
                    for query in narrowing.ratio(source.table, source.narrow)
                ]
        except psycopg.Error as error:
            if self._connection.closed or isinstance(error, psycopg.errors.LockNotAvailable):
                conditions = bool(source.where or source.narrow)
                raise source.error(error, conditions=conditions) from None
            return False
        return bool(wanted <= _WORTH * every)

    def _end_transaction(self) -> None:
        """Roll back a transaction that an error has left open."""
        if self._connection.info.transaction_status != pq.TransactionStatus.IDLE:
            self._connection.execute("ROLLBACK")

    def _read_keyed(
        self, source: ChunkSource, request: ChunkRequest, limit: int
    ) -> tuple[list[CopiedRow], Key | None, int, int]:
        columns = self._key_columns(source)
        order = listed(columns)
        rows: list[CopiedRow] = []
        last: Key | None = None
        size = skipped = 0
        if request.ranged:
            where = self._beyond(source, request)
            last, skipped = request.last, request.rows
            if source.narrow and last is None:
                last, skipped = self._border(source, order, where, limit)
            if last is not None:
                where.append(compared(columns, "<=", last))
            tail = sql.SQL("{} ORDER BY {}").format(narrowing.joined(where), order)
            if last is None and not source.narrow:
                tail += sql.SQL(" LIMIT {}").format(sql.Literal(limit))
            lines = [line for lines in self._lines(source, tail, source.narrow) for line in lines]
            size = len(lines)
            skipped = max(0, skipped - size) if source.narrow else 0
            if last is None and lines:
                last = _key_of(lines[-1], source)
            rows += lines
        if request.again:
            again = narrowing.joined([among(columns, request.again)])
            for lines in self._lines(source, again):
                rows += lines
        return rows, last, size, skipped

    def _beyond(self, source: ChunkSource, request: ChunkRequest) -> list[sql.Composable]:
        """Return the conditions of the rows that are still to be read."""
        where = narrowing.condition(source.where) + narrowing.condition(source.slices)
        if request.after is not None:
            where.append(compared(self._key_columns(source), ">", request.after))
        return where

    def _border(
        self,
        source: ChunkSource,
        order: sql.Composable,
        where: Sequence[sql.Composable],
        limit: int,
    ) -> tuple[Key | None, int]:
        """Return the last key of the next `limit` rows, None at the end, and how many there are."""
        query = narrowing.border(source.table, source.key, order, narrowing.joined(where), limit)
        statement = sql.SQL("COPY ({}) TO STDOUT").format(query).as_bytes(self._connection)
        found = [line for lines in copy_lines(self._connection, statement) for line in lines]
        if not found:
            return None, 0
        *key, size = (text or b"" for text in split_copy_line(found[0][:-1]))
        return tuple(key), int(size)

    def _spool(self, source: ChunkSource) -> _SpooledRows:
        file = tempfile.TemporaryFile(dir=self._spool_directory)  # noqa: SIM115  _SpooledRows has it
        rows = _SpooledRows(file, bool(source.columns))
        try:
            for lines in self._lines(source, narrowing.joined(narrowing.condition(source.where))):
                file.writelines(lines)
        except BaseException:
            file.close()
            raise
        return rows

    def _lines(
        self, source: ChunkSource, tail: sql.Composable, narrow: Sequence[str] = ()
    ) -> Iterator[list[bytes]]:
        """Yield rows as COPY writes them, with their newlines, many at a time."""
        query = narrowing.select(source.table, source.columns, tail, narrow)
        statement = sql.SQL("COPY ({}) TO STDOUT").format(query)
        for lines in copy_lines(self._connection, statement.as_bytes(self._connection)):
            self.rows += len(lines)
            self.bytes += sum(map(len, lines))
            yield lines

    def _key_columns(self, source: ChunkSource) -> list[KeyColumn]:
        name = (source.table, source.key)
        if name not in self._keys:
            self._keys[name] = key_columns(
                self._connection, source.table, source.key, self._known_types
            )
        return self._keys[name]

    def _refuse_foreign_code(self, source: ChunkSource) -> None:
        """Refuse a condition that would run code of other roles, whoever has written it."""
        if source.where and source not in self._looked_at:
            why = narrowing.foreign_code(self._connection, source.table, source.where)
            if why is not None:
                raise ConditionError(f"copying {source.table}: the condition on its rows: {why}")
            self._looked_at.add(source)

    def _is_at_work(self) -> bool:
        """Whether the server's process is busy, and not waiting for its output to be read."""
        with connect(self._dsn, on_wait=self._on_wait) as other:
            row = other.execute(
                "SELECT state = 'active' AND wait_event IS DISTINCT FROM 'ClientWrite'"
                " FROM pg_catalog.pg_stat_activity WHERE pid = %s",
                [self._connection.info.backend_pid],
            ).fetchone()
        return row is not None and bool(row[0])

    def _row(self, query: str, doing: str, parameters: Any = None) -> Sequence[Any]:
        try:
            if self._connection.info.transaction_status == pq.TransactionStatus.INERROR:
                self._end_transaction()
            row = self._connection.execute(query.encode(), parameters).fetchone()
        except psycopg.Error as error:
            text = error.diag.message_primary or str(error)
            raise classify_server_error(error.sqlstate, text, doing=doing) from None
        assert row is not None
        return row

    def estimate_rows(self, table: Table) -> int | None:
        """Return the planner's estimate of the number of rows, leaves included, or None.

        Raises:
            TransientError: the connection is gone.
        """
        estimate = self._row(
            "SELECT pg_catalog.sum(reltuples)::pg_catalog.int8 FROM pg_catalog.pg_class"
            " WHERE oid = ANY (%s::pg_catalog.oid[]) AND reltuples >= 0",
            f"estimating the rows of {table}",
            [[*table.leaves] or [table.oid]],
        )[0]
        return None if estimate is None else int(estimate)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class _SpooledRows:
    """Rows in a temporary file, which is removed with this object."""

    def __init__(self, file: IO[bytes], columns: bool) -> None:
        self._file = file
        self._columns = columns

    def close(self) -> None:
        """Remove the file, without waiting for whoever may still have a traceback with it."""
        self._file.close()

    def __del__(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[CopiedRow]:
        self._file.seek(0)
        for line in self._file:
            yield line if self._columns else []


def _key_of(line: bytes, source: ChunkSource) -> Key:
    at = source.key_positions
    return tuple(text or b"" for text in key_of_line(line, at, max(at) + 1))
