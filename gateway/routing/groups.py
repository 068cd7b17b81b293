"""The hot path: one tuple in, records for every subscription that takes it out.

A `RelationRoute` is prepared when a Relation message arrives. It holds a `Group` for each form
in which the row is published (target table and columns), and a group holds a `Taker` for each
subscription. A row is split once, encoded once per group, and only if somebody takes it.

``seq`` and ``total_order`` are assigned here, before filtering, so that they do not depend on the
definitions. All functions append to `out` and never look at the clock, the log or a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from gateway.definitions.model import Operation
from gateway.envelope.canonical import partition_of
from gateway.envelope.envelope import EMPTY_ARRAY, EnvelopeEncoder, SourcePrefix
from gateway.errors import ProtocolError
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.pgoutput.tuples import split_tuple
from gateway.records import Header, Record
from gateway.routing.binary import RowToText
from gateway.routing.filters import Asking
from gateway.routing.quarantine import FailedRow, Quarantine
from gateway.routing.state import CollectionOrder, TransactionState
from gateway.routing.takers import Candidates, Row, Taker
from gateway.rowfilter import Action, FilterEvaluationError, decide_update, fill_unchanged

__all__ = ["Change", "Group", "RelationRoute"]

Draft: TypeAlias = tuple[bytes | None, bytes, bytes | None, list[Header]]
"""A record before it has a topic: key, canonical key, value without wire prefix, headers."""

_TAG_AT: Final = 25
_INSERT: Final = ord("I")
_DELETE: Final = ord("D")
_KEY: Final = ord("K")
_FULL: Final = ord("O")


class Group:
    """One published form of a relation's rows, and who takes it.

    Attributes:
        encoder: Envelopes of this form.
        encode_row: Tuple -> Avro record ``Value``.
        encode_old: Old key tuple -> the same, identity columns only.
        encode_key: Tuple -> Avro key, or None where the table has no key.
        canonical: Tuple -> bytes that are equal when the keys are, for the partition.
        unchanged: Tuple -> Avro array of the published columns that are UNCHANGED.
        quarantine: Where rows go on which a filter raises; None: the error goes on.
    """

    __slots__ = (
        "_prefix",
        "_prefix_of",
        "canonical",
        "deleting",
        "encode_key",
        "encode_old",
        "encode_row",
        "encoder",
        "inserting",
        "order",
        "quarantine",
        "takers",
        "target_oid",
        "tombstones",
        "unchanged",
        "updating",
        "value",
    )

    def __init__(
        self,
        encoder: EnvelopeEncoder,
        target_oid: int,
        takers: Sequence[Taker],
        order: CollectionOrder,
        *,
        tombstones: bool,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.encoder = encoder
        self.target_oid = target_oid
        self.takers = takers
        self.order = order
        self.tombstones = tombstones
        self.quarantine = quarantine
        self.encode_row = encoder.encode_row
        self.encode_old = encoder.encode_old
        self.encode_key = encoder.encode_key
        self.unchanged = encoder.encode_unchanged
        self.value = encoder.value
        # With one partition everywhere nobody asks for the hash.
        spread = any(taker.counter.partitions > 1 for taker in takers)
        self.canonical = encoder.canonical_key if spread else None
        self.inserting = Candidates(takers, Operation.INSERT)
        self.updating = Candidates(takers, Operation.UPDATE)
        self.deleting = Candidates(takers, Operation.DELETE)
        self._prefix: SourcePrefix = (b"", None, b"")  # of no transaction
        self._prefix_of: TransactionState | None = None

    def insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Publish an INSERT, or a row of the initial copy, to the takers whose filter it passes."""
        # The hot loop: `draft` and `emit` for the one record that an insert can be, in one place.
        # No value of it can be UNCHANGED: the server puts TOASTed values of new rows back together
        # (ReorderBufferToastReplace).
        made = False
        for taker, passes in self.inserting.of(row):
            try:
                if passes is not None and not passes(row):
                    continue
            except FilterEvaluationError as error:
                failed = FailedRow(tx.insert_op, None, False, row, lsn)
                self.fail(error, Operation.INSERT, failed, taker, tx, out)
                continue
            if tx.has_origin and taker.skips_origins:
                continue
            if not made:
                made = True
                seq = tx.seq
                op = tx.insert_op
                key = None if self.encode_key is None else self.encode_key(row)
                body = self.value(
                    op,
                    None,
                    self.encode_row(row),
                    self._prefix if self._prefix_of is tx else self.prefix(tx),
                    lsn,
                    seq,
                    tx.total_order,
                    self.order.count,
                )
                headers = tx.headers.make(lsn, seq, op)
            counter = taker.counter
            partition = 0
            if self.canonical is not None:
                partition = partition_of(self.canonical(row), counter.partitions)
            counter.records += 1
            out.append(
                (
                    counter.topic,
                    partition,
                    None if key is None else taker.key_prefix + key,
                    taker.value_prefix + body,
                    headers,
                )
            )

    def update(
        self,
        old: Row | None,
        full: bool,
        new: Row,
        lsn: int,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Publish an UPDATE as what it is for each taker: update, insert, delete or nothing."""
        made: dict[Action, list[Draft]] = {}
        for taker, passes in self.updating.of_both(old, new):
            try:
                action = Action.UPDATE if passes is None else decide_update(passes, old, new)
            except FilterEvaluationError as error:
                failed = FailedRow(b"u", old, full, new, lsn)
                self.fail(error, Operation.UPDATE, failed, taker, tx, out)
                continue
            if action is None or (tx.has_origin and taker.skips_origins):
                continue
            drafts = made.get(action)
            if drafts is None:
                drafts = made[action] = self.draft_update(action, old, full, new, lsn, tx)
            self.emit(drafts, taker, out)

    def delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a DELETE to the takers whose filter the old row passes."""
        drafts: list[Draft] | None = None
        for taker, passes in self.deleting.of(old):
            if tx.has_origin and taker.skips_origins:
                continue
            try:
                if passes is not None and not passes(old):
                    continue
            except FilterEvaluationError as error:
                failed = FailedRow(b"d", old, full, None, lsn)
                self.fail(error, Operation.DELETE, failed, taker, tx, out)
                continue
            if drafts is None:
                drafts = self.draft_delete(old, full, lsn, tx.seq, tx)
            self.emit(drafts, taker, out)

    def truncate(self, lsn: int, tx: TransactionState, taker: Taker, out: list[Record]) -> None:
        """Publish a TRUNCATE to every partition of the taker's topic."""
        body = self.encoder.value(
            b"t", None, None, self.prefix(tx), lsn, tx.seq, tx.total_order, self.order.count
        )
        headers = tx.headers.make(lsn, tx.seq, b"t")
        value = taker.value_prefix + body
        partitions = range(taker.counter.partitions)
        out.extend((taker.topic, partition, None, value, headers) for partition in partitions)
        taker.counter.records += len(partitions)

    def draft_update(
        self,
        action: Action,
        old: Row | None,
        full: bool,
        new: Row,
        lsn: int,
        tx: TransactionState,
    ) -> list[Draft]:
        """Make the records of an UPDATE: both halves when the key changes."""
        if action is Action.DELETE:
            assert old is not None  # without an old row there is nothing to leave the filter
            return self.draft_delete(old, full, lsn, tx.seq, tx)
        if action is Action.INSERT:
            if UNCHANGED in new:
                table = str(self.encoder.schema)
                tx.lost_values[table] = tx.lost_values.get(table, 0) + 1
            return [self.draft(b"c", new, None, new, lsn, tx.seq, tx)]
        if old is None:
            return [self.draft(b"u", new, None, new, lsn, tx.seq, tx)]
        before = self.encode_row(old) if full else self.encode_old(old)
        if self.encode_key is None or self.encode_key(old) == self.encode_key(new):
            return [self.draft(b"u", new, before, new, lsn, tx.seq, tx)]
        drafts = self.draft_delete(old, full, lsn, tx.seq - 1, tx, rekey=b"old")
        drafts.append(self.draft(b"c", new, before, new, lsn, tx.seq, tx, rekey=b"new"))
        return drafts

    def draft_delete(
        self,
        old: Row,
        full: bool,
        lsn: int,
        seq: int,
        tx: TransactionState,
        rekey: bytes | None = None,
    ) -> list[Draft]:
        """Make a ``d`` record and, where the table has a key, its tombstone."""
        before = self.encode_row(old) if full else self.encode_old(old)
        draft = self.draft(b"d", old, before, None, lsn, seq, tx, rekey=rekey)
        if self.tombstones and self.encoder.has_tombstones:
            return [draft, (draft[0], draft[1], None, draft[3])]
        return [draft]

    def draft(
        self,
        op: bytes,
        keyed: Row,
        before: bytes | None,
        after: Row | None,
        lsn: int,
        seq: int,
        tx: TransactionState,
        *,
        rekey: bytes | None = None,
    ) -> Draft:
        """Encode one record; its key comes from `keyed`."""
        key = None if self.encode_key is None else self.encode_key(keyed)
        canonical = b"" if self.canonical is None else self.canonical(keyed)
        body = self.value(
            op,
            before,
            None if after is None else self.encode_row(after),
            self.prefix(tx),
            lsn,
            seq,
            tx.total_order,
            self.order.count,
            EMPTY_ARRAY if after is None or UNCHANGED not in after else self.unchanged(after),
        )
        return key, canonical, body, tx.headers.make(lsn, seq, op, rekey)

    def prefix(self, tx: TransactionState) -> SourcePrefix:
        """Return the source block's constant part, encoded once per transaction."""
        if self._prefix_of is not tx:
            self._prefix = self.encoder.begin(tx.context)
            self._prefix_of = tx
        return self._prefix

    def emit(self, drafts: list[Draft], taker: Taker, out: list[Record]) -> None:
        """Address drafts to one taker's topic, and count them."""
        counter = taker.counter
        for key, canonical, body, headers in drafts:
            partition = partition_of(canonical, counter.partitions) if self.canonical else 0
            wire_key = None if key is None else taker.key_prefix + key
            if body is None:
                out.append((taker.topic, partition, wire_key, None, headers))
            else:
                out.append((taker.topic, partition, wire_key, taker.value_prefix + body, headers))
                counter.records += 1

    def fail(
        self,
        error: FilterEvaluationError,
        operation: Operation,
        row: FailedRow,
        taker: Taker,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Put a row on which the taker's filter raised into the error topic, or raise again.

        Not where the subscription leaves the transaction out for its origin: PostgreSQL does not
        get to the filter then.

        Source: FilterByOrigin in decode.c, before pgoutput_change.
        """
        if tx.has_origin and taker.skips_origins:
            return
        if self.quarantine is None:
            raise error
        filters = taker.filters.get(operation, ())
        out.append(self.quarantine.record(error, taker.counter.subscription, filters, row, tx))
        table = str(self.encoder.schema)
        tx.quarantined[table] = tx.quarantined.get(table, 0) + 1


@dataclass(slots=True)
class Change:
    """A row change that has been read and not been routed yet.

    Attributes:
        full: `old` has all columns, not only those of the replica identity.
    """

    route: RelationRoute
    lsn: int
    old: Row | None
    full: bool
    new: Row | None
    is_insert: bool = False

    def publish(self, tx: TransactionState, out: list[Record]) -> None:
        """Route it; numbers are given now."""
        if self.new is None:
            assert self.old is not None
            self.route.publish_delete(self.old, self.full, self.lsn, tx, out)
        elif self.is_insert:
            self.route.publish_insert(self.new, self.lsn, tx, out)
        else:
            self.route.publish_update(self.old, self.full, self.new, self.lsn, tx, out)


class Watch(Protocol):
    """Somebody who is shown the changes of a relation: `gateway.routing.copies.CopyWatch`."""

    def insert(self, row: Row, tx: TransactionState) -> None:
        """Show an INSERT."""

    def update(self, old: Row | None, new: Row, tx: TransactionState) -> None:
        """Show an UPDATE."""

    def delete(self, old: Row, tx: TransactionState) -> None:
        """Show a DELETE."""


class RelationRoute:
    """Everything prepared for one announced relation.

    Attributes:
        columns: Number of columns of its tuples.
        to_text: Turns values in binary format into text; None where all come as text.
        asking: What the server is asked about its rows, if anything.
        watches: The copies under way that are shown its changes.
    """

    __slots__ = (
        "asking",
        "columns",
        "groups",
        "name",
        "orders",
        "relation_oid",
        "to_text",
        "watches",
    )

    def __init__(
        self,
        relation_oid: int,
        name: str,
        columns: int,
        groups: Sequence[Group],
        to_text: RowToText | None = None,
        asking: Asking | None = None,
        watches: Sequence[Watch] = (),
    ) -> None:
        self.relation_oid = relation_oid
        self.name = name
        self.columns = columns
        self.groups = groups
        self.to_text = to_text
        self.asking = asking
        self.watches = watches
        # Two forms of one table share its order: it counts changes, not records.
        self.orders = list({id(group.order): group.order for group in groups}.values())

    def read(self, frame: bytes, at: int) -> Change:
        """Read the Insert, Update or Delete whose relation OID stands at `at` in `frame`."""
        lsn, tag = int.from_bytes(frame[1:9]), frame[_TAG_AT]
        if tag == _INSERT:
            return Change(self, lsn, None, False, self._read_insert(frame, at), is_insert=True)
        if tag == _DELETE:
            old, full = self._read_delete(frame, at)
            return Change(self, lsn, old, full, None)
        before, full, new = self._read_update(frame, at)
        return Change(self, lsn, before, full, new)

    def insert(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Insert whose relation OID stands at `at` in `frame`."""
        self.publish_insert(self._read_insert(frame, at), int.from_bytes(frame[1:9]), tx, out)

    def update(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Update whose relation OID stands at `at` in `frame`."""
        old, full, new = self._read_update(frame, at)
        self.publish_update(old, full, new, int.from_bytes(frame[1:9]), tx, out)

    def delete(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Delete whose relation OID stands at `at` in `frame`."""
        old, full = self._read_delete(frame, at)
        self.publish_delete(old, full, int.from_bytes(frame[1:9]), tx, out)

    def publish_insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Number an INSERT, and publish it."""
        tx.seq += 1
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for group in self.groups:
            group.insert(row, lsn, tx, out)
        for watch in self.watches:
            watch.insert(row, tx)

    def publish_update(
        self,
        old: Row | None,
        full: bool,
        new: Row,
        lsn: int,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Number an UPDATE, and publish it."""
        tx.seq += 2
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for group in self.groups:
            group.update(old, full, new, lsn, tx, out)
        for watch in self.watches:
            watch.update(old, new, tx)

    def publish_delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Number a DELETE, and publish it."""
        tx.seq += 1
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for group in self.groups:
            group.delete(old, full, lsn, tx, out)
        for watch in self.watches:
            watch.delete(old, tx)

    def _read_insert(self, frame: bytes, at: int) -> Row:
        if frame[at + 4 : at + 5] != b"N":
            raise _unexpected(frame, at + 4, "N")
        row, end = split_tuple(frame, at + 5)
        if end != len(frame) or len(row) != self.columns:
            self._check(frame, row, end)
        if self.to_text is not None:
            self.to_text(row)
        return row

    def _read_update(self, frame: bytes, at: int) -> tuple[Row | None, bool, Row]:
        old: list[ColumnValue] | None = None
        tag, end = frame[at + 4 : at + 5], at + 4
        full = tag == b"O"
        if full or tag == b"K":
            old, end = split_tuple(frame, at + 5)
            tag = frame[end : end + 1]
        if tag != b"N":
            raise _unexpected(frame, end, "N")
        new, end = split_tuple(frame, end + 1)
        self._check(frame, new, end)
        if self.to_text is not None:
            self.to_text(new)
            if old is not None:
                self.to_text(old)
        if old is not None and UNCHANGED in new:
            return old, full, fill_unchanged(old, new)
        return old, full, new

    def _read_delete(self, frame: bytes, at: int) -> tuple[Row, bool]:
        tag = frame[at + 4]
        if tag not in (_KEY, _FULL):
            raise _unexpected(frame, at + 4, "K or O")
        old, end = split_tuple(frame, at + 5)
        self._check(frame, old, end)
        if self.to_text is not None:
            self.to_text(old)
        return old, tag == _FULL

    def _check(self, frame: bytes, row: Row, end: int) -> None:
        if end != len(frame):
            raise ProtocolError(
                f"{len(frame) - end} bytes left over", tag=frame[25:26], offset=end - 25
            )
        if len(row) != self.columns:
            raise ProtocolError(
                f"{len(row)} columns for relation {self.name}, announced with {self.columns}",
                tag=frame[25:26],
                offset=0,
            )


def _unexpected(frame: bytes, at: int, wanted: str) -> ProtocolError:
    return ProtocolError(
        f"expected tuple tag {wanted}, found {frame[at : at + 1]!r}",
        tag=frame[25:26],
        offset=at - 25,
    )
