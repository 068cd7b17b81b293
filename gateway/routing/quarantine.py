"""Rows on which a filter raised, as records of the error topic: ``on_filter_error = quarantine``.

PostgreSQL has no such thing: there the walsender fails at such a row until the filter or the row is
changed. Here the subscriptions whose filter raised go on without the change, and the record says
which one, so that a person can put right what they hold. The record has the columns that the
subscription publishes and no others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gateway.definitions.model import FilterClause
from gateway.envelope.markers import encode_filter_error
from gateway.pgoutput.messages import UNCHANGED
from gateway.records import Record
from gateway.routing.state import TransactionState
from gateway.routing.takers import Row
from gateway.rowfilter import FilterEvaluationError

__all__ = ["ErrorTopic", "FailedRow", "Quarantine"]


@dataclass(frozen=True, slots=True)
class ErrorTopic:
    """The topic, and the prefix of its values in Confluent's wire format."""

    name: str
    prefix: bytes


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A change on which a subscription's filter raised.

    Attributes:
        op: ``c``, ``u``, ``d`` or ``r``: what happened at the source.
        full: `old` has all columns, not only those of the replica identity.
    """

    op: bytes
    old: Row | None
    full: bool
    new: Row | None
    lsn: int


class Quarantine:
    """Makes the records of one published form of a relation.

    Args:
        relation: Where the change happened, qualified.
        table: Schema and name of the table that it is published as.
        columns: Of the published columns, name and position in the tuples.
        identity: Names of the replica identity's columns.
    """

    __slots__ = ("_columns", "_identity", "_relation", "_table", "_topic")

    def __init__(
        self,
        topic: ErrorTopic,
        relation: str,
        table: tuple[str, str],
        columns: Sequence[tuple[str, int]],
        identity: Collection[str],
    ) -> None:
        self._topic = topic
        self._relation = relation
        self._table = table
        self._columns = columns
        self._identity = frozenset(identity)

    def record(
        self,
        error: FilterEvaluationError,
        subscription: str,
        filters: Sequence[FilterClause],
        row: FailedRow,
        tx: TransactionState,
    ) -> Record:
        """Make the record of `row` for one subscription, whose combined `filters` raised."""
        schema, table = self._table
        logged = None if row.full else self._identity
        identified = row.new if row.old is None else row.old
        value = encode_filter_error(
            subscription=subscription,
            schema=schema,
            table=table,
            relation=self._relation,
            op=row.op.decode(),
            reason=error.reason,
            sqlstate=error.sqlstate,
            filters=[(clause.publication, clause.text) for clause in filters],
            key=self._texts(identified, self._identity) if self._identity else None,
            before=self._texts(row.old, logged),
            after=self._texts(row.new),
            unchanged=[
                name
                for name, index in self._columns
                if row.new is not None and row.new[index] is UNCHANGED
            ],
            lsn=row.lsn,
            commit_lsn=tx.context.commit_lsn,
            xid=tx.context.xid,
            seq=tx.seq,
            ts_ms=tx.context.ts_ms,
        )
        headers = tx.headers.make(row.lsn, tx.seq, row.op)
        return (self._topic.name, 0, None, self._topic.prefix + value, headers)

    def _texts(
        self, row: Row | None, only: Collection[str] | None = None
    ) -> dict[str, str | None] | None:
        """The values as text; those that were not sent, or are not among `only`, are left out."""
        if row is None:
            return None
        texts: dict[str, str | None] = {}
        for name, index in self._columns:
            value = row[index]
            if value is UNCHANGED or (only is not None and name not in only):
                continue
            # The walsender and the copy send UTF-8; a row must not get lost over one that is not.
            texts[name] = None if value is None else value.decode(errors="replace")
        return texts
