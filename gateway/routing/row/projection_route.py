"""Hot path from one tuple to the records of every subscription that receives it.

A `gateway.routing.row.relation_route.RelationRoute` is prepared when a Relation message arrives. It
has a `ProjectionRoute` for each projection of the row (target table and columns), which has a
`Target` for each subscription. A row is split once, and encoded once per projection if a target
receives it. Filters see the row as it is; it is masked before anything is made of it. All functions
append to `out` and never touch the clock, the log or a lock.

Unpublishable changes are detected on the way, at almost no cost to other rows: a filter or an
encoder raises, and the exact size of a record is computed only near the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gateway.core.errors import RecordSizeError, UnfitError, UnloggedError
from gateway.core.lsn import format_lsn
from gateway.core.records import Header, Record
from gateway.definitions.model import Operation, TableId
from gateway.envelope.canonical import partition_of
from gateway.envelope.encoding.encoders import RowEncoder
from gateway.envelope.envelope import EMPTY_ARRAY, EnvelopeEncoder, SourcePrefix
from gateway.envelope.masking import RowMask
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.row.quarantine import Quarantine, UnfitChange, check_size, check_values
from gateway.routing.row.targets import Candidates, Row, Target
from gateway.routing.row.transaction_state import CollectionOrder, TransactionState
from gateway.rowfilter import Action, decide_update
from schemas.headers import DEBEZIUM_HEADERS

__all__ = ["ProjectionRoute"]

Draft: TypeAlias = tuple[bytes | None, bytes, bytes | None, list[Header]]
"""Record without a topic: key, canonical key, value without wire prefix, headers."""

_NEW_KEY, _OLD_KEY = DEBEZIUM_HEADERS
_MOST_OF_HEADERS: Final = 4096
"""Upper bound on the bytes of a record's headers, prefixes and lengths."""


def with_keys(drafts: list[Draft], key_prefix: bytes) -> list[Draft]:
    """Return the halves of a key change with Debezium's headers, which name the other key."""
    old_key, new_key = drafts[0][0], drafts[-1][0]
    assert old_key is not None and new_key is not None
    *deleted, inserted = drafts
    at_old: Header = (_NEW_KEY, key_prefix + new_key)
    at_new: Header = (_OLD_KEY, key_prefix + old_key)
    return [
        *((*draft[:3], [*draft[3], at_old]) for draft in deleted),
        (*inserted[:3], [*inserted[3], at_new]),
    ]


class ProjectionRoute:
    """One projection of a relation's rows, and the targets that receive it.

    Attributes:
        encoder: Encoder of envelopes of this projection.
        encode_row: Tuple -> Avro record ``Value``.
        encode_new: The same for the new row of an update.
        encode_old: Old key tuple -> the same, with the identity's columns only.
        encode_key: Tuple -> Avro key; None if the table has no key.
        encode_place: Tuple -> bytes that differ when an UPDATE moves the row; None if none can.
        canonical: Tuple -> bytes that are equal if the keys are, for the choice of the partition;
            None if all topics have one partition.
        mask: Tuple -> the same with masked values; None if no column is masked.
        unchanged: Tuple -> Avro array of the published columns that are UNCHANGED.
        names_keys: Whether the halves of a key change name the key of the other.
        quarantine: Destination of changes that cannot be published; None if these raise.
        withdraw: Holds a table from a row on whose old values were not logged, and returns whether
            it could; a table that it could not hold fails as by any other row.
        surely_fits: Size in bytes of key and of value up to which no record can be too large.
    """

    __slots__ = (
        "_encode_named",
        "_prefix",
        "_prefix_of",
        "canonical",
        "deleting",
        "encode_key",
        "encode_new",
        "encode_old",
        "encode_place",
        "encode_row",
        "encoder",
        "inserting",
        "mask",
        "names_keys",
        "order",
        "quarantine",
        "surely_fits",
        "target_oid",
        "targets",
        "tombstones",
        "unchanged",
        "updating",
        "value",
        "widest",
        "withdraw",
    )

    def __init__(
        self,
        encoder: EnvelopeEncoder,
        target_oid: int,
        targets: Sequence[Target],
        order: CollectionOrder,
        *,
        mask: RowMask | None,
        tombstones: bool,
        quarantine: Quarantine | None = None,
        withdraw: Callable[[TableId, str], bool] = lambda *_: False,
    ) -> None:
        self.encoder = encoder
        self.target_oid = target_oid
        self.targets = targets
        self.order = order
        self.tombstones = tombstones
        self.quarantine = quarantine
        self.withdraw = withdraw
        self.encode_row = encoder.encode_row
        self.encode_new = encoder.encode_new
        self.encode_old = encoder.encode_old
        self.encode_key = encoder.encode_key
        self.encode_place = encoder.encode_place
        self.mask = mask
        self.unchanged = encoder.encode_unchanged
        self.value = encoder.value
        self.names_keys = encoder.envelope.format == "debezium"
        # The hash is needed only for topics with several partitions.
        spread = any(target.counter.partitions > 1 for target in targets)
        self.canonical = encoder.canonical_key if spread else None
        # A key can be longer than the value: arrays in a whole-row key are text.
        least = min((target.counter.most_bytes for target in targets), default=0)
        self.surely_fits = (least - _MOST_OF_HEADERS) // 2
        self.widest = max(targets, key=lambda target: target.counter.most_bytes, default=None)
        self.inserting = Candidates(targets, Operation.INSERT)
        self.updating = Candidates(targets, Operation.UPDATE)
        self.deleting = Candidates(targets, Operation.DELETE)
        self._encode_named: RowEncoder | None = None
        self._prefix: SourcePrefix = (b"", None, b"")  # belongs to no transaction
        self._prefix_of: TransactionState | None = None

    def insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Publish an INSERT, or a copied row, to the targets whose filter it passes."""
        # Hot loop: `draft` and `emit` inlined for the only record that an INSERT can become.
        made = False
        masked = row
        for target, passes in self.inserting.of(row):
            try:
                if passes is not None and not passes(row):
                    continue
                if tx.has_origin and target.skips_origins:
                    continue
                if not made:
                    if self.mask is not None:
                        masked = self.mask(row)
                    if tx.large:
                        self.check_values(masked)
                    seq = tx.seq
                    op = tx.insert_op
                    key = None if self.encode_key is None else self.encode_key(masked)
                    body = self.value(
                        op,
                        None,
                        self.encode_row(masked),
                        self._prefix if self._prefix_of is tx else self.prefix(tx),
                        lsn,
                        seq,
                        tx.total_order,
                        self.order.count,
                        EMPTY_ARRAY
                        if UNCHANGED not in masked
                        else self.note_lost_values(masked, tx),
                    )
                    headers = tx.headers.make(lsn, seq, op)
                    large = self.may_be_large(key, body)
                    made = True
                counter = target.counter
                partition = 0
                if self.canonical is not None:
                    partition = partition_of(self.canonical(masked), counter.partitions)
                record = (
                    counter.topic,
                    partition,
                    None if key is None else target.key_prefix + key,
                    target.value_prefix + body,
                    headers,
                )
                if large:
                    check_size(self.encoder.schema, record, counter.most_bytes)
            except UnfitError as error:
                change = UnfitChange(tx.insert_op, None, False, row, lsn)
                self.handle_unfit(error, Operation.INSERT, change, target, tx, out)
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
        """Publish an UPDATE to each target: as an update, an insert, a delete, or not at all."""
        made: dict[Action, list[Draft]] = {}
        for target, passes in self.updating.of_both(old, new):
            try:
                action = Action.UPDATE if passes is None else decide_update(passes, old, new)
                if action is None or (tx.has_origin and target.skips_origins):
                    continue
                drafts = made.get(action)
                if drafts is None:
                    before = None if old is None else self.masked(old)
                    drafts = made[action] = self.draft_update(
                        action, before, full, self.masked(new), lsn, tx
                    )
                self.emit(drafts, target, action, tx, out)
            except UnfitError as error:
                change = UnfitChange(b"u", old, full, new, lsn)
                self.handle_unfit(error, Operation.UPDATE, change, target, tx, out)

    def delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a DELETE to the targets whose filter the old row passes."""
        drafts: list[Draft] | None = None
        for target, passes in self.deleting.of(old):
            if tx.has_origin and target.skips_origins:
                continue
            try:
                if passes is not None and not passes(old):
                    continue
                if drafts is None:
                    drafts = self.draft_delete(self.masked(old), full, lsn, tx.seq, tx)
                self.emit(drafts, target, Action.DELETE, tx, out)
            except UnfitError as error:
                change = UnfitChange(b"d", old, full, None, lsn)
                self.handle_unfit(error, Operation.DELETE, change, target, tx, out)

    def truncate(
        self,
        lsn: int,
        tx: TransactionState,
        target: Target,
        out: list[Record],
        *,
        is_reported: bool = True,
    ) -> None:
        """Publish a TRUNCATE to all partitions of the target's topic; count it if `is_reported`."""
        if target.refused is not None:
            change = UnfitChange(b"t", None, False, None, lsn)
            self.handle_unfit(target.refused, Operation.TRUNCATE, change, target, tx, out)
            return
        body = self.encoder.value(
            b"t", None, None, self.prefix(tx), lsn, tx.seq, tx.total_order, self.order.count
        )
        headers = tx.headers.make(lsn, tx.seq, b"t")
        value = target.value_prefix + body
        partitions = range(target.counter.partitions)
        out.extend((target.topic, partition, None, value, headers) for partition in partitions)
        tx.touched.append(target.counter)
        target.counter.records += len(partitions)
        target.counter.others += len(partitions)
        target.counter.truncates += is_reported

    def masked(self, row: Row) -> Row:
        """Return the row with masked values, as it may leave the gateway."""
        return row if self.mask is None else self.mask(row)

    def draft_update(
        self,
        action: Action,
        old: Row | None,
        full: bool,
        new: Row,
        lsn: int,
        tx: TransactionState,
    ) -> list[Draft]:
        """Make the records of an UPDATE, from masked rows; two halves if the row moves."""
        self.check_logged(full or action is Action.INSERT)
        if action is Action.DELETE:
            assert old is not None  # without an old row, nothing can leave the filter
            return self.draft_delete(old, full, lsn, tx.seq, tx)
        if action is Action.INSERT:
            if UNCHANGED in new:
                self.note_lost_values(new, tx)
            return [self.draft(b"c", new, None, new, lsn, tx.seq, tx)]
        if old is None:
            return [self.draft(b"u", new, None, new, lsn, tx.seq, tx)]
        if tx.large and full:
            self.check_values(old)
        before = self.encode_row(old) if full else self.encode_old(old)
        if self.encode_place is None or self.encode_place(old) == self.encode_place(new):
            return [self.draft(b"u", new, before, new, lsn, tx.seq, tx)]
        drafts = self.draft_delete(old, full, lsn, tx.seq - 1, tx, rekey=b"old")
        drafts.append(self.draft(b"c", new, before, new, lsn, tx.seq, tx, rekey=b"new"))
        return drafts

    def note_lost_values(self, row: Row, tx: TransactionState) -> bytes:
        """Count an INSERT of a row that lacks values; return the array of these columns.

        A filter has turned an UPDATE into this INSERT, here or, with push-down, on the server: all
        values of a row that was really inserted are sent (ReorderBufferToastReplace).
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
        """Make a ``d`` of a masked row and, if tombstones are on and it has a key, a tombstone."""
        self.check_logged(full)
        if tx.large and full:
            self.check_values(old)
        before = self.encode_row(old) if full else self.encode_old(old)
        return self._with_tombstone(self.draft(b"d", old, before, None, lsn, seq, tx, rekey=rekey))

    def draft_remove(
        self, row: Row, full: bool, lsn: int, seq: int, tx: TransactionState
    ) -> list[Draft]:
        """Make a ``d`` of a row that a subscriber may have; see `draft_delete`.

        Its `before` has the key alone, also where the replica identity is the whole row: the
        subscriber may have other values, and is not to see these.
        """
        self.check_logged(full)
        if self._encode_named is None:
            self._encode_named = self.encoder.compile_named()
        before = self._encode_named(row)
        return self._with_tombstone(self.draft(b"d", row, before, None, lsn, seq, tx))

    def _with_tombstone(self, draft: Draft) -> list[Draft]:
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
        """Encode one record with the key of `keyed`; the rows are masked."""
        if tx.large and after is not None:
            self.check_values(after)
        key = None if self.encode_key is None else self.encode_key(keyed)
        canonical = b"" if self.canonical is None else self.canonical(keyed)
        # Natively, a value that was not sent is NULL in a row that a filter inserts.
        is_inserted = op == b"c" and rekey is None
        encode = self.encode_row if is_inserted else self.encode_new
        body = self.value(
            op,
            before,
            None if after is None else encode(after),
            self.prefix(tx),
            lsn,
            seq,
            tx.total_order,
            self.order.count,
            EMPTY_ARRAY if after is None or UNCHANGED not in after else self.unchanged(after),
        )
        return key, canonical, body, tx.headers.make(lsn, seq, op, rekey)

    def check_logged(self, full: bool) -> None:
        """Raise if key or partition need the whole old row, and it was not logged.

        Raises:
            UnloggedError: the replica identity is not what the route was built for; that of a
                partition published as its root can change unannounced.
        """
        if self.encoder.needs_full and not full:
            raise UnloggedError(
                f"{self.encoder.schema}: the old values of the columns in [topics.keys] or"
                " [topics.partition_by] are not logged",
                hint="ALTER TABLE ... REPLICA IDENTITY FULL, for each partition",
            )

    def check_values(self, row: Row) -> None:
        """Raise `RecordSizeError` if one value makes the row's record too large for all topics."""
        if self.widest is not None:
            values = (row[index] for index in self.encoder.indexes)
            counter = self.widest.counter
            check_values(self.encoder.schema, values, counter.topic, counter.most_bytes)

    def may_be_large(self, key: bytes | None, body: bytes) -> bool:
        """Whether a record has to be measured."""
        most = self.surely_fits
        return len(body) > most or (key is not None and len(key) > most)

    def prefix(self, tx: TransactionState) -> SourcePrefix:
        """Return the constant part of the source block, encoded once per transaction."""
        if self._prefix_of is not tx:
            self._prefix = self.encoder.begin(tx.context)
            self._prefix_of = tx
        return self._prefix

    def emit(
        self,
        drafts: list[Draft],
        target: Target,
        action: Action,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Append drafts as records of one target's topic and count them, all or none.

        Raises:
            RecordSizeError: a record is too large.
        """
        counter = target.counter
        before, counted = len(out), counter.records
        if not counted:
            tx.touched.append(counter)
        is_named = self.names_keys and len({d[0] for d in drafts}) > 1
        if is_named:
            drafts = with_keys(drafts, target.key_prefix)
        for key, canonical, body, headers in drafts:
            partition = partition_of(canonical, counter.partitions) if self.canonical else 0
            wire_key = None if key is None else target.key_prefix + key
            if body is None:
                out.append((target.topic, partition, wire_key, None, headers))
                continue
            record = (target.topic, partition, wire_key, target.value_prefix + body, headers)
            if is_named or self.may_be_large(key, body):
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

    def handle_unfit(
        self,
        error: UnfitError,
        operation: Operation,
        change: UnfitChange,
        target: Target,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Handle a change that the target cannot receive: the error topic, a hold, or an exception.

        A table of which old values were not logged is held: a copy replaces its rows. Other changes
        go to the error topic, if it accepts their kind. Nothing happens if the subscription skips
        the transaction because of its origin: PostgreSQL does not evaluate the filter then, either.

        Raises:
            UnfitError: `error`.

        Source: FilterByOrigin in decode.c, before pgoutput_change.
        """
        if tx.has_origin and target.skips_origins:
            return
        if isinstance(error, UnloggedError) and self.withdraw(
            (target.counter.subscription, self.target_oid), error.message
        ):
            return
        if self.quarantine is None or error.kind not in self.quarantine.kinds:
            xid = tx.context.xid
            error.place(
                "a row that is copied"
                if xid is None
                else f"row at LSN {format_lsn(change.lsn)}, transaction {xid}"
            )
            raise error
        filters = target.filters.get(operation, ())
        out.append(self.quarantine.record(error, target.counter.subscription, filters, change, tx))
        place = (str(self.encoder.schema), error.kind)
        tx.quarantined[place] = tx.quarantined.get(place, 0) + 1
