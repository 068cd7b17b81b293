r"""Read tables as an exported snapshot sees them, for the initial copy.

Values come by COPY in text format from a session with the walsender's settings, so they are byte
for byte what the stream has for the same values, and a filter is evaluated by the server itself.

COPY ends each row with a newline and separates columns by tabs; both, and the backslash, are
escaped inside values, and NULL is ``\N``. So a line without a backslash is split and done.

Source: PostgreSQL manual, COPY, "Text Format"; CopyAttributeOutText in copyto.c;
CopyReadAttributesText in copyfromparse.c; fetch_remote_table_info and copy_table in tablesync.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import psycopg
from psycopg import sql

from gateway.definitions.model import Table
from gateway.errors import FatalError, GatewayError, TransientError
from gateway.source.connection import SESSION_SETTINGS, classify_server_error, connect

__all__ = ["CopyRow", "SnapshotReader", "split_copy_line"]

CopyRow = list[bytes | None]
"""One row: its columns' text as the output functions write it, in UTF-8; None is NULL."""

_SETTINGS: Final = {
    **SESSION_SETTINGS,
    # As where the filters were rendered: names in them are qualified.
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    # Logical decoding knows no row security: an error is better than rows that are silently away.
    "row_security": "off",
}

_BATCH_ROWS: Final = 500
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROL: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class SnapshotReader:
    """A transaction on an exported snapshot; close it when the copy is done.

    Args:
        dsn: As the user gave it.
        snapshot_name: As `ReplicationConnection.create_slot` returned it; that connection has to
            be left alone until this object is made.
        lock_timeout_s: Longest wait for a table that another session has locked.

    Raises:
        TransientError: the snapshot is gone, or the server cannot be reached.
        FatalError: the server refuses the role.
    """

    def __init__(
        self,
        dsn: str,
        snapshot_name: str,
        *,
        application_name: str = "pgsluice copy",
        lock_timeout_s: float = 60.0,
    ) -> None:
        self._connection = connect(
            dsn,
            application_name=application_name,
            settings=_SETTINGS,
            statement_timeout_s=0,
            lock_timeout_s=lock_timeout_s,
        )
        try:
            if self._connection.info.server_version >= 170000:
                self._connection.execute("SET transaction_timeout = 0")
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._connection.execute(
                sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name))
            )
        except psycopg.Error as error:
            self._connection.close()
            if error.sqlstate is not None and error.sqlstate[:2] in ("22", "42", "55"):
                raise TransientError(
                    "the exported snapshot of the initial copy is gone",
                    hint="the connection that created the slot has ended: the copy starts again "
                    "from a new snapshot",
                ) from None
            raise classify_server_error(
                error.sqlstate, str(error), doing="taking over the snapshot"
            ) from None

    def copy_rows(
        self, table: Table, columns: Sequence[str], where: Sequence[str] = ()
    ) -> Iterator[list[CopyRow]]:
        """Read the rows that pass, in batches.

        The rows of a partitioned table are those of all its leaves; for any other table only its
        own, without those of tables that inherit from it.

        Args:
            table: As the catalog has it.
            columns: Which, in which order; may be empty.
            where: Filters in SQL of which one must be true, as the server printed them; empty:
                every row.

        Raises:
            TransientError: the connection is gone, the table stayed locked, or it was altered,
                rewritten or truncated since the snapshot.
            FatalError: no right to read the table, row security, or a filter that fails on a row.
        """
        name = sql.Identifier(table.schema, table.name)
        statement = sql.SQL("COPY (SELECT {} FROM {}{}{}) TO STDOUT").format(
            sql.SQL(", ").join(sql.Identifier(column) for column in columns),
            sql.SQL("" if table.kind == "p" else "ONLY "),
            name,
            # The server's own rendering of an expression it has parsed before.
            sql.SQL(_condition(where)),
        )
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                rows: list[CopyRow] = []
                # The server sends one row a message, with its newline.
                for line in copy:
                    rows.append(split_copy_line(bytes(line[:-1])) if columns else [])
                    if len(rows) >= _BATCH_ROWS:
                        yield rows
                        rows = []
                if rows:
                    yield rows
            self._check_not_rewritten(table)
        except psycopg.Error as error:
            raise self._copy_error(error, table) from None

    def _check_not_rewritten(self, table: Table) -> None:
        """Refuse a copy of what was rewritten since the snapshot: it looks empty, and is not.

        Called when the copy holds the table's lock. pg_class is read as of the snapshot, its
        function as of now.

        Source: PostgreSQL manual, "MVCC Caveats": TRUNCATE and the table-rewriting forms of ALTER
        TABLE are not MVCC-safe.
        """
        row = self._connection.execute(
            "SELECT count(*) FROM pg_catalog.pg_class AS c WHERE c.oid = ANY (%s::oid[])"
            " AND c.relfilenode <> 0"
            " AND c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)",
            [[table.oid, *table.leaves]],
        ).fetchone()
        if row is not None and row[0]:
            raise TransientError(
                f"copying {table}: it was rewritten or truncated since the snapshot was taken, so "
                "that the snapshot no longer shows its rows",
                hint="the copy starts again; leave ALTER TABLE, TRUNCATE and VACUUM FULL until it "
                "has ended",
            )

    def estimate_rows(self, table: Table) -> int | None:
        """The planner's guess at the number of rows, leaves included; None when it has none.

        Raises:
            TransientError: the connection is gone.
        """
        try:
            row = self._connection.execute(
                "SELECT sum(reltuples)::bigint FROM pg_catalog.pg_class"
                " WHERE oid = ANY (%s::oid[]) AND reltuples >= 0",
                [[*table.leaves] or [table.oid]],
            ).fetchone()
        except psycopg.Error as error:
            doing = f"estimating the rows of {table}"
            raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
        return None if row is None else row[0]

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _copy_error(self, error: psycopg.Error, table: Table) -> GatewayError:
        doing = f"copying {table}"
        text = error.diag.message_primary or str(error)
        if error.sqlstate == "42501" and "row-level security" in text:
            return FatalError(
                f"{doing}: row security hides rows of it from this role",
                hint="ALTER ROLE ... BYPASSRLS for the role of source.dsn; the stream of changes "
                "is not subject to row security either",
            )
        if error.sqlstate is not None and error.sqlstate.startswith("22"):
            # The text can quote a value.
            return FatalError(
                f"{doing}: a row filter failed on a row, SQLSTATE {error.sqlstate}",
                hint="the server's log has the details; change the filter or the row, or set "
                '[definitions] on_filter_error = "quarantine" to put such rows into the error '
                "topic and go on",
            )
        if error.sqlstate in ("42P01", "42703"):
            return TransientError(
                f"{doing}: it was altered since the definitions were read: {text}"
            )
        return classify_server_error(error.sqlstate, text, doing=doing)


def split_copy_line(line: bytes) -> CopyRow:
    r"""Split one line of COPY text format, without its newline, into columns.

    Source: CopyReadAttributesText. What COPY writes is read exactly; ``\.`` cannot occur inside a
    row that COPY has written.
    """
    if b"\\" not in line:
        return list(line.split(b"\t"))
    return [
        None if field == rb"\N" else _ESCAPE.sub(_unescape, field) if b"\\" in field else field
        for field in line.split(b"\t")
    ]


def _unescape(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, character = match.groups()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8) & 0xFF,))
    return _CONTROL.get(character, character)


def _condition(where: Sequence[str]) -> str:
    if not where:
        return ""
    return " WHERE " + " OR ".join(f"({text})" for text in where)
