"""Records of the error topic for changes that cannot be published (``[on_error]``).

PostgreSQL has no equivalent: its walsender or subscriber fails at such a change until somebody
intervenes. Here the affected subscriptions continue without the change. The record identifies the
change and describes the effect on their tables, so that somebody can repair them. It has only the
columns that the subscription publishes; values are omitted, the longest first, until it fits its
topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.core.errors import RecordSizeError, UnfitError, UnfitKind
from gateway.core.records import Header, Record, wire_size
from gateway.definitions.model import FilterClause
from gateway.envelope.markers import encode_error
from gateway.envelope.masking import RowMask
from gateway.pgoutput.messages import UNCHANGED, ColumnValue, LogicalMessage
from gateway.routing.row.targets import Row
from gateway.routing.row.transaction_state import TransactionState

__all__ = ["ErrorTopic", "Quarantine", "UnfitChange", "check_size", "check_value", "check_values"]

_RAISE_LIMITS: Final = (
    'raise max.message.bytes of the topic and "message.max.bytes" in [kafka], as far as they are '
    "below it"
)
_MOST_OF_A_VALUE: Final = (None, 65_536, 1_024, 32, 0)
"""Maximum size in bytes of a value that is not omitted, by attempt."""
_MOST_OF_A_TEXT: Final = 1_000
"""Maximum length of a reason or a filter, in characters, if something has to be omitted."""

_SHRINKS_TO: Final = 16
"""Maximum ratio of a value's size as PostgreSQL sends it to its size in Avro.

An item of an array of timestamptz is 32 bytes of text, and two bytes if it is 1970-01-01 00:00 and
a few microseconds.
"""

_EFFECTS: Final[Mapping[bytes, str]] = {
    b"c": "missing",
    b"r": "missing",
    b"u": "stale",
    b"d": "kept",
    b"t": "kept",
}
"""Effect on the subscriber's table, by the operation at the source."""


@dataclass(frozen=True, slots=True)
class ErrorTopic:
    """Error topic.

    Attributes:
        prefix: Prefix of its values in Confluent's wire format.
        kinds: Kinds of unpublishable changes that go there.
        most_bytes: Maximum size of a record, as `gateway.core.records.wire_size` counts it.
        hides_values: Whether reasons quote no values.
    """

    name: str
    prefix: bytes
    kinds: Collection[UnfitKind]
    most_bytes: int
    hides_values: bool = False

    def message(
        self,
        error: UnfitError,
        message: LogicalMessage,
        commit_lsn: int,
        xid: int | None,
        seq: int,
        headers: list[Header],
        ts_ms: int,
    ) -> Record:
        """Make the record of a logical message."""
        value = encode_error(
            kind=error.kind,
            op="m",
            effect="missing",
            reason=error.reason,
            lsn=message.lsn,
            commit_lsn=commit_lsn,
            xid=xid,
            seq=seq,
            ts_ms=ts_ms,
        )
        return (self.name, 0, None, self.prefix + value, headers)


def check_value(of: object, bytes_: int, topic: str, most_bytes: int) -> None:
    """Raise if a value alone is larger than a record may be, before it is encoded.

    Args:
        of: Origin of the value or record, for the message.
        bytes_: Size of the encoded value.
        topic: Topic of the record.
        most_bytes: Maximum size of a record there.

    Raises:
        RecordSizeError: it is too large.
    """
    if bytes_ > most_bytes:
        raise RecordSizeError(
            f"{of}: a record of {bytes_} bytes and more is larger than topic {topic} accepts, "
            f"{most_bytes}",
            hint=_RAISE_LIMITS,
        )


def check_values(of: object, values: Iterable[ColumnValue], topic: str, most_bytes: int) -> None:
    """Raise if one value alone makes a row's record too large, before it is encoded.

    Args:
        of: Origin of the row, for the message.
        values: Values of the row's published columns, as PostgreSQL sends them.
        topic: Topic of the record.
        most_bytes: Maximum size of a record there.

    Raises:
        RecordSizeError: the row has such a value.
    """
    longest = max((len(value) for value in values if isinstance(value, bytes)), default=0)
    check_value(of, longest // _SHRINKS_TO, topic, most_bytes)


def check_size(of: object, record: Record, most_bytes: int) -> None:
    """Raise if a record is too large for its topic.

    Args:
        of: Origin of the value or record, for the message.
        record: Record with a value.
        most_bytes: Maximum size, as `gateway.core.records.wire_size` counts it.

    Raises:
        RecordSizeError: it is too large.
    """
    topic, _, key, value, headers = record
    size = wire_size(key, value, headers)
    if size > most_bytes:
        raise RecordSizeError(
            f"{of}: a record of {size} bytes is larger than topic {topic} accepts, {most_bytes}",
            hint=_RAISE_LIMITS,
        )


@dataclass(frozen=True, slots=True)
class UnfitChange:
    """A change that cannot be published for a subscription.

    Attributes:
        op: Operation at the source: ``c``, ``u``, ``d``, ``t`` or ``r``.
        full: Whether `old` has all columns, not only those of the replica identity.
    """

    op: bytes
    old: Row | None
    full: bool
    new: Row | None
    lsn: int


class Quarantine:
    """Maker of error records for one projection of a relation.

    Args:
        topic: Error topic.
        relation: Qualified name of the relation that changed.
        table: Schema and name of the table that it is published as.
        columns: Name and tuple index of each published column.
        identity: Names of the replica identity's columns.
        mask: Mask of the rows, or None.

    Attributes:
        kinds: Kinds of unpublishable changes that go there.
    """

    __slots__ = ("_columns", "_identity", "_mask", "_relation", "_table", "_topic", "kinds")

    def __init__(
        self,
        topic: ErrorTopic,
        relation: str,
        table: tuple[str, str],
        columns: Sequence[tuple[str, int]],
        identity: Collection[str],
        mask: RowMask | None = None,
    ) -> None:
        self.kinds = topic.kinds
        self._topic = topic
        self._relation = relation
        self._table = table
        self._columns = columns
        self._identity = frozenset(identity)
        self._mask = mask

    def record(
        self,
        error: UnfitError,
        subscription: str,
        filters: Sequence[FilterClause],
        change: UnfitChange,
        tx: TransactionState,
    ) -> Record:
        """Make the record of `change` for a subscription with the combined `filters`."""
        headers = tx.headers.make(change.lsn, tx.seq, change.op)
        reason = error.reason
        if self._mask is not None:
            old, new = (None if r is None else self._mask(r) for r in (change.old, change.new))
            change = replace(change, old=old, new=new)
        if self._topic.hides_values or self._mask is not None:
            # The reason may quote values, and PostgreSQL's text in the message others than quoted.
            reason = f"SQLSTATE {error.sqlstate}" if error.sqlstate else error.message
        for most in _MOST_OF_A_VALUE:
            if most != 0 and self._least_bytes(change, most) > self._topic.most_bytes:
                continue  # too large without being encoded
            value = self._value(error, reason, subscription, filters, change, tx, most)
            if wire_size(None, value, headers) <= self._topic.most_bytes:
                break
        return (self._topic.name, 0, None, value, headers)

    def _least_bytes(self, change: UnfitChange, most: int | None) -> int:
        """Return the total size in bytes of the values that have at most `most` bytes."""
        logged = None if change.full else self._identity
        return sum(
            len(value)
            for row, only in ((change.old, logged), (change.new, None))
            if row is not None
            for name, index in self._columns
            if (only is None or name in only)
            and (value := row[index]) is not None
            and value is not UNCHANGED
            and (most is None or len(value) <= most)
        )

    def _value(
        self,
        error: UnfitError,
        reason: str,
        subscription: str,
        filters: Sequence[FilterClause],
        change: UnfitChange,
        tx: TransactionState,
        most: int | None,
    ) -> bytes:
        schema, table = self._table
        logged = None if change.full else self._identity
        identified = change.new if change.old is None else change.old
        keyed = bool(self._identity) and identified is not None
        cut = None if most is None else _MOST_OF_A_TEXT
        omitted: set[str] = set()
        value = encode_error(
            kind=error.kind,
            subscription=subscription,
            schema=schema,
            table=table,
            relation=self._relation,
            op=change.op.decode(),
            effect=_EFFECTS[change.op],
            reason=reason[:cut],
            sqlstate=error.sqlstate,
            filters=[(clause.publication, clause.text[:cut]) for clause in filters],
            key=self._texts(identified, self._identity, most, omitted) if keyed else None,
            before=self._texts(change.old, logged, most, omitted),
            after=self._texts(change.new, None, most, omitted),
            unchanged=[
                name
                for name, index in self._columns
                if change.new is not None and change.new[index] is UNCHANGED
            ],
            omitted=[name for name, _ in self._columns if name in omitted],
            lsn=change.lsn,
            commit_lsn=tx.context.commit_lsn,
            xid=tx.context.xid,
            seq=tx.seq,
            ts_ms=tx.context.ts_ms,
        )
        return self._topic.prefix + value

    def _texts(
        self, row: Row | None, only: Collection[str] | None, most: int | None, omitted: set[str]
    ) -> dict[str, str | None] | None:
        """Return the values as text, except those that were not sent or are not in `only`.

        Values of more than `most` bytes are left out as well; the names of their columns are added
        to `omitted`.
        """
        if row is None:
            return None
        texts: dict[str, str | None] = {}
        for name, index in self._columns:
            value = row[index]
            if value is UNCHANGED or (only is not None and name not in only):
                continue
            if value is not None and most is not None and len(value) > most:
                omitted.add(name)
                continue
            # The walsender and the copy send UTF-8; a row must not be lost because a value is not.
            texts[name] = None if value is None else value.decode(errors="replace")
        return texts
