"""Transactions and changes as users of the client get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from pgsluice_client.position import Position

__all__ = ["Change", "Column", "CopyState", "Row", "Transaction"]

Row: TypeAlias = dict[str, Any]
"""Values by the column names of PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, as the schema of a change has it.

    Attributes:
        name: Name of the column in PostgreSQL.
        field: Name of the field in the record.
        number: Number of the column, which outlives a new name; None if not known.
        type: PostgreSQL's name of the type.
        canonical: Name of the canonical form of texts in keys; see schemas/types.toml.
        avro: Avro type of the value.
        missing: Text of the value of rows from before the column; None for NULL.
        convert: Conversion of the decoded value; None if it stays as it is.
    """

    name: str
    field: str
    number: int | None
    type: str
    canonical: str
    avro: Any
    missing: str | None
    convert: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row, or a truncate.

    Attributes:
        schema: Schema of the table as published.
        table: Name of the table as published.
        op: ``c`` insert, ``u`` update, ``d`` delete, ``t`` truncate, ``r`` row of a copy. Both
            halves of a key change are one ``u``.
        key: Values that identify the row, which the key of its record need not be; None in a table
            without such columns, and for ``t``.
        old_key: Previous key, of an update that changes it; else `key`.
        before: Row before, as far as it was logged.
        after: Row after; None for ``d`` and ``t``. Columns in `unchanged` are None there.
        unchanged: Columns of `after` that did not change and were not sent.
        begins_copy: Whether it is the ``t`` with which a copy begins.
        lsn: LSN of the change, as ``pg_lsn`` accepts it.
        seq: Number of the change in its transaction; 0 in a copy.
        columns: Columns of the table at this change.
    """

    schema: str
    table: str
    op: str
    key: Row | None
    old_key: Row | None
    before: Row | None
    after: Row | None
    unchanged: frozenset[str]
    begins_copy: bool
    lsn: str
    seq: int
    columns: tuple[Column, ...] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CopyState:
    """A COPY marker: the copy of a table has changed its state.

    Attributes:
        schema: Schema of the table.
        table: Name of the table.
        state: ``pending``, ``copying``, ``ready``: from here on the table is complete. ``held``,
            ``missing``, ``gone``: it gets nothing more until it is copied.
        reason: Reason of the last three, where there is one.
    """

    schema: str
    table: str
    state: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction of the source, or rows of a copy that belong at one position.

    Attributes:
        changes: Its changes in their order, over all tables; may be empty if there are `copies`.
        position: Position after it, to be stored together with what was made of it.
        xid: Transaction ID; None for rows of a copy.
        commit_lsn: LSN of the commit, or of the copied rows; None without changes.
        end_lsn: End of the transaction in the WAL; None for rows of a copy, or if its END marker
            is no longer in Kafka.
        commit_time: Time of the commit, likewise.
        origin: Replication origin, for a transaction that came from elsewhere.
        gid: Identifier of a prepared transaction.
        copies: Copies that have changed their state; they count after the changes.
    """

    changes: tuple[Change, ...]
    position: Position
    xid: int | None = None
    commit_lsn: str | None = None
    end_lsn: str | None = None
    commit_time: datetime | None = None
    origin: str | None = None
    gid: str | None = None
    copies: tuple[CopyState, ...] = ()
