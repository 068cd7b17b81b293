"""The hot path: one tuple in, records for every subscription that takes it out.

A `gateway.routing.row.relation_route.RelationRoute` is prepared when a Relation message arrives. It
holds a `Group` for each form in which the row is published (target table and columns), and a group
holds a `Taker` for each subscription. A row is split once, encoded once per group, and only if
somebody takes it. All functions append to `out` and never look at the clock, the log or a lock.

What cannot be published is found on the way and costs the other rows next to nothing: a filter or
an encoder raises, and a record's size is looked at closely only where it comes near the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from gateway.core.errors import RecordSizeError, UnfitError
from gateway.core.lsn import format_lsn
from gateway.core.records import Header, Record
from gateway.definitions.model import Operation
from gateway.envelope.canonical import partition_of
from gateway.envelope.envelope import EMPTY_ARRAY, EnvelopeEncoder, SourcePrefix
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.row.quarantine import Quarantine, UnfitChange, check_size, check_value
from gateway.routing.row.targets import Candidates, Row, Taker
from gateway.routing.row.transaction_state import CollectionOrder, TransactionState
from gateway.rowfilter import Action, decide_update

__all__ = ["Group"]

Draft: TypeAlias = tuple[bytes | None, bytes, bytes | None, list[Header]]
"""A record before it has a topic: key, canonical key, value without wire prefix, headers."""

SHRINKS_TO: Final = 8
"""No value as PostgreSQL sends it is more than so many times as long as in Avro: `{NULL,NULL}`."""

_MOST_OF_HEADERS: Final = 4096
"""More than headers, prefixes and lengths of a record ever have."""


class Group:
    """One published form of a relation's rows, and who takes it.

    Attributes:
        encoder: Envelopes of this form.
        encode_row: Tuple -> Avro record ``Value``.
        encode_old: Old key tuple -> the same, identity columns only.
        encode_key: Tuple -> Avro key, or None where the table has no key.
        canonical: Tuple -> bytes that are equal when the keys are, for the partition.
        unchanged: Tuple -> Avro array of the published columns that are UNCHANGED.
        quarantine: Where changes go that cannot be published; None: the error goes on.
        surely_fits: A value of so many bytes makes no record that is too large.
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
        "surely_fits",
        "takers",
        "target_oid",
        "tombstones",
        "unchanged",
        "updating",
        "value",
        "widest",
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
        # A key's columns are in the value as well, so it is no longer than that.
        least = min((taker.counter.most_bytes for taker in takers), default=0)
        self.surely_fits = (least - _MOST_OF_HEADERS) // 2
        self.widest = max(takers, key=lambda taker: taker.counter.most_bytes, default=None)
        self.inserting = Candidates(takers, Operation.INSERT)
        self.updating = Candidates(takers, Operation.UPDATE)
        self.deleting = Candidates(takers, Operation.DELETE)
        self._prefix: SourcePrefix = (b"", None, b"")  # of no transaction
        self._prefix_of: TransactionState | None = None

    def insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Publish an INSERT, or a row of the initial copy, to the takers whose filter it passes."""
        # The hot loop: `draft` and `emit` for the one record that an insert can be, in one place.
        made = False
        for taker, passes in self.inserting.of(row):
            try:
                if passes is not None and not passes(row):
                    continue
                if tx.has_origin and taker.skips_origins:
                    continue
                if not made:
                    if tx.large:
                        self.check_values(row)
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
                        EMPTY_ARRAY if UNCHANGED not in row else self.lost(row, tx),
                    )
                    headers = tx.headers.make(lsn, seq, op)
                    large = len(body) > self.surely_fits
                    made = True
                counter = taker.counter
                partition = 0
                if self.canonical is not None:
                    partition = partition_of(self.canonical(row), counter.partitions)
                record = (
                    counter.topic,
                    partition,
                    None if key is None else taker.key_prefix + key,
                    taker.value_prefix + body,
                    headers,
                )
                if large:
                    check_size(self.encoder.schema, record, counter.most_bytes)
            except UnfitError as error:
                change = UnfitChange(tx.insert_op, None, False, row, lsn)
                self.fail(error, Operation.INSERT, change, taker, tx, out)
                continue
            if not counter.records:
                tx.touched.append(counter)
            counter.records += 1
            out.append(record)

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
                if action is None or (tx.has_origin and taker.skips_origins):
                    continue
                drafts = made.get(action)
                if drafts is None:
                    drafts = made[action] = self.draft_update(action, old, full, new, lsn, tx)
                self.emit(drafts, taker, action, tx, out)
            except UnfitError as error:
                change = UnfitChange(b"u", old, full, new, lsn)
                self.fail(error, Operation.UPDATE, change, taker, tx, out)

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
                if drafts is None:
                    drafts = self.draft_delete(old, full, lsn, tx.seq, tx)
                self.emit(drafts, taker, Action.DELETE, tx, out)
            except UnfitError as error:
                change = UnfitChange(b"d", old, full, None, lsn)
                self.fail(error, Operation.DELETE, change, taker, tx, out)

    def truncate(
        self,
        lsn: int,
        tx: TransactionState,
        taker: Taker,
        out: list[Record],
        *,
        told: bool = True,
    ) -> None:
        """Publish a TRUNCATE to every partition of the taker's topic; the source `told` of it."""
        if taker.refused is not None:
            change = UnfitChange(b"t", None, False, None, lsn)
            self.fail(taker.refused, Operation.TRUNCATE, change, taker, tx, out)
            return
        body = self.encoder.value(
            b"t", None, None, self.prefix(tx), lsn, tx.seq, tx.total_order, self.order.count
        )
        headers = tx.headers.make(lsn, tx.seq, b"t")
        value = taker.value_prefix + body
        partitions = range(taker.counter.partitions)
        out.extend((taker.topic, partition, None, value, headers) for partition in partitions)
        tx.touched.append(taker.counter)
        taker.counter.records += len(partitions)
        taker.counter.others += len(partitions)
        taker.counter.truncates += told

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
                self.lost(new, tx)
            return [self.draft(b"c", new, None, new, lsn, tx.seq, tx)]
        if old is None:
            return [self.draft(b"u", new, None, new, lsn, tx.seq, tx)]
        if tx.large and full:
            self.check_values(old)
        before = self.encode_row(old) if full else self.encode_old(old)
        if self.encode_key is None or self.encode_key(old) == self.encode_key(new):
            return [self.draft(b"u", new, before, new, lsn, tx.seq, tx)]
        drafts = self.draft_delete(old, full, lsn, tx.seq - 1, tx, rekey=b"old")
        drafts.append(self.draft(b"c", new, before, new, lsn, tx.seq, tx, rekey=b"new"))
        return drafts

    def lost(self, row: Row, tx: TransactionState) -> bytes:
        """Count a row that a filter has made an INSERT of and that lacks values; return which.

        The filter may be the server's: values of a row that was inserted are always sent
        (ReorderBufferToastReplace).
        """
        table = str(self.encoder.schema)
        tx.lost_values[table] = tx.lost_values.get(table, 0) + 1
        return self.unchanged(row)

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
        if tx.large and full:
            self.check_values(old)
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
        if tx.large and after is not None:
            self.check_values(after)
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

    def check_values(self, row: Row) -> None:
        """Refuse a row with a value that makes its record too large for all of its topics.

        Raises:
            RecordSizeError: it has one.
        """
        if self.widest is None:
            return
        longest = max(
            (
                len(value)
                for index in self.encoder.indexes
                if isinstance(value := row[index], bytes)
            ),
            default=0,
        )
        counter = self.widest.counter
        check_value(self.encoder.schema, longest // SHRINKS_TO, counter.topic, counter.most_bytes)

    def prefix(self, tx: TransactionState) -> SourcePrefix:
        """Return the source block's constant part, encoded once per transaction."""
        if self._prefix_of is not tx:
            self._prefix = self.encoder.begin(tx.context)
            self._prefix_of = tx
        return self._prefix

    def emit(
        self,
        drafts: list[Draft],
        taker: Taker,
        action: Action,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Address drafts to one taker's topic, and count them: all of them or none.

        Raises:
            RecordSizeError: one is too large.
        """
        counter = taker.counter
        before, counted = len(out), counter.records
        if not counted:
            tx.touched.append(counter)
        for key, canonical, body, headers in drafts:
            partition = partition_of(canonical, counter.partitions) if self.canonical else 0
            wire_key = None if key is None else taker.key_prefix + key
            if body is None:
                out.append((taker.topic, partition, wire_key, None, headers))
                continue
            record = (taker.topic, partition, wire_key, taker.value_prefix + body, headers)
            if len(body) > self.surely_fits:
                try:
                    check_size(self.encoder.schema, record, counter.most_bytes)
                except RecordSizeError:
                    del out[before:]
                    counter.records = counted
                    raise
            out.append(record)
            counter.records += 1
        counter.others += counter.records - counted
        if action is Action.UPDATE:
            counter.updates += 1
        elif action is Action.DELETE:
            counter.deletes += 1
        else:
            counter.inserts += 1

    def fail(
        self,
        error: UnfitError,
        operation: Operation,
        change: UnfitChange,
        taker: Taker,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Put a change that the taker cannot get into the error topic, or raise again.

        Not where the subscription leaves the transaction out for its origin: PostgreSQL does not
        get to the filter then.

        Source: FilterByOrigin in decode.c, before pgoutput_change.
        """
        if tx.has_origin and taker.skips_origins:
            return
        if self.quarantine is None or error.kind not in self.quarantine.kinds:
            xid = tx.context.xid
            error.place(
                "a row that is copied"
                if xid is None
                else f"row at LSN {format_lsn(change.lsn)}, transaction {xid}"
            )
            raise error
        filters = taker.filters.get(operation, ())
        out.append(self.quarantine.record(error, taker.counter.subscription, filters, change, tx))
        place = (str(self.encoder.schema), error.kind)
        tx.quarantined[place] = tx.quarantined.get(place, 0) + 1
