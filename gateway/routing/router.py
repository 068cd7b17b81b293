"""Router from committed transactions to Kafka records: numbering, routing, END markers.

Numbers (``seq``, ``total_order``) are assigned in commit order to every committed change, before
any filtering; a replay, streamed or not, therefore yields the same numbers. Each subscription that
received a record gets an END marker after its records. Work that depends on the relation alone is
done when the relation is announced (`RelationRoutes`), not here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from gateway.core.errors import ProtocolError, RecordSizeError, UnfitKind
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.records import Feed, Record
from gateway.definitions.ddl.alterations import PREFIXES as DDL_PREFIXES
from gateway.definitions.ddl.authentication import Reason
from gateway.envelope.envelope import TransactionContext, gateway_part
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import (
    encode_end,
    encode_end_of,
    encode_message,
    encode_prepare,
    encode_rollback_prepared,
)
from gateway.pgoutput import letters
from gateway.pgoutput.decoder import decode_message
from gateway.pgoutput.frames import XLOGDATA_HEADER, oid_position
from gateway.pgoutput.messages import LogicalMessage, Relation, Truncate, Type
from gateway.routing.build.publication_history import first_change_from, first_lsn
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.ports import UnannouncedError
from gateway.routing.row.counters import RowKey, Tally, pop_counts
from gateway.routing.row.inner_changes import InnerChanges
from gateway.routing.row.quarantine import check_size, check_value
from gateway.routing.row.record_buffer import Piece
from gateway.routing.row.server_filters import Verdicts
from gateway.routing.row.transaction_state import TransactionState
from gateway.routing.settings import RoutingSettings
from gateway.routing.short_transactions import RoutedSeries, series_router
from gateway.transactions import (
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)

__all__ = ["Router"]

_INSERT: Final = ord(letters.TAG_INSERT)
_UPDATE: Final = ord(letters.TAG_UPDATE)
_CHANGES: Final = b"IUD"
_RELATION: Final = ord("R")


class Router:
    """Router for the transactions of one slot. Not thread-safe.

    Args:
        inner: Reader of the changes of inner tables, where filters have sub-selects.
        answering: Context manager entered around calls to the outside, in which keepalives are
            answered; also while `routes` build a route.

    Attributes:
        ended: End of the last transaction with an END marker, by subscription.
        awaits: Descriptor that becomes readable when `route` can continue; None if it is not
            waiting.
    """

    def __init__(
        self,
        routes: RelationRoutes,
        settings: RoutingSettings,
        *,
        inner: InnerChanges | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        answering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._routes = routes
        self._addresses = routes.addresses
        self._feeds = routes.addresses.feeds
        self._settings = settings
        self._inner = inner
        self._now_ms = now_ms
        self._answering = routes.by_oid.answering = answering
        self.ended: dict[str, Lsn] = {}
        self._verdicts: Verdicts | None = None
        if routes.evaluator is not None and routes.filters.ask_server:
            self._verdicts = Verdicts(routes.evaluator, routes.by_oid)
        self._unannounced: deque[Transaction | PreparedTransaction] = deque()
        part = gateway_part(settings.version, settings.gateway, settings.database)
        self._compiled = series_router(routes, part, self._feeds, now_ms, self._is_inner)
        self.awaits: int | None = None
        self._lost_values: dict[str, int] = {}
        self._quarantined: Counter[tuple[str, UnfitKind]] = Counter()

    @property
    def feeds(self) -> Sequence[Feed]:
        """Topics of every subscription; every call returns the same object."""
        return self._feeds

    @property
    def routes_series(self) -> bool:
        """Whether `route_series` can route; False while rows are read ahead for the server."""
        return self._compiled is not None and self._verdicts is None

    def pop_lost_values(self) -> dict[str, int]:
        """Return the number of rows with NULL for a missing value since the last call, by table.

        A value is missing when a filter turns an UPDATE of the key into an INSERT and the unchanged
        TOAST columns are not in the stream; a native subscriber gets NULL as well.
        """
        lost, self._lost_values = self._lost_values, {}
        return lost

    def pop_quarantined(self) -> Mapping[tuple[str, UnfitKind], int]:
        """Return the number of error records since the last call, by table and kind."""
        quarantined = self._quarantined
        if quarantined:
            self._quarantined = Counter()
        return quarantined

    def pop_ignored(self) -> Mapping[Reason, int]:
        """Return the number of DDL messages ignored since the last call, by reason."""
        ignored = self._routes.ignored
        if ignored:
            self._routes.ignored = Counter()
        return ignored

    def tally(self) -> Tally:
        """Return the totals since the routes were built."""
        rows: dict[RowKey, int] = {}
        changes: dict[tuple[str, str], int] = {}
        for counter in self._addresses.counters.values():
            rows |= counter.rows()
            changed = self._routes.projections.changes(counter.table_oid)
            changes[counter.subscription, counter.table] = changed
        return Tally(rows, changes)

    def foresee(self, item: Transaction | PreparedTransaction) -> None:
        """Announce the next item to be routed or marked, in the order of these calls.

        The server can then be asked about its rows while earlier rows are still being routed.

        Raises:
            TransientError: the connection that evaluates filters was lost.
        """
        if self._verdicts is None:
            return
        begins = self._routes.begins
        if begins and (self._unannounced or item.end_lsn > min(begins.values())):
            # The routes change at this item, and rows of earlier ones are still to be read.
            self._unannounced.append(item)
        else:
            self._verdicts.foresee(item)

    def _begin_tables(self, end_lsn: Lsn) -> None:
        """Publish the tables that begin before `end_lsn`; everything before it has been routed."""
        begins, unannounced = self._routes.begins, self._unannounced
        self._routes.begin_tables(end_lsn)
        while unannounced and not (begins and unannounced[0].end_lsn > min(begins.values())):
            assert self._verdicts is not None
            self._verdicts.foresee(unannounced.popleft())

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        """Yield the records of `transaction` in bounded pieces, END markers last.

        An empty piece means that routing has to wait; see `awaits`.

        Raises:
            ProtocolError: a message does not parse, or refers to a relation that was never
                announced.
            UnfitError: a change cannot be published and is not quarantined.
            SchemaError: a relation cannot be published.
            TransientError: the registry or the catalog could not be reached.
        """
        if self._routes.begins:
            self._begin_tables(transaction.end_lsn)
        tx = self._state(transaction)
        if self._inner is not None:
            tx.followed = self._inner.begin(transaction)
        until = None
        if self._routes.history and self._verdicts is None:  # otherwise it was read ahead
            until = self._routes.enter(first_lsn(transaction))
        at = oid_position(streamed=transaction.streamed)
        piece = Piece()
        if self._verdicts is None:
            for frames in transaction.frames():
                while until is not None and (after := first_change_from(frames, until)) < len(
                    frames
                ):
                    yield from self._route_frames(frames[:after], at, transaction, tx, piece)
                    frames, until = frames[after:], self._routes.enter(until)
                yield from self._route_frames(frames, at, transaction, tx, piece)
        else:
            yield from self._route_judged(self._verdicts, at, transaction, tx, piece)
        if tx.followed is not None:
            tx.followed.end()
        for table, rows in tx.lost_values.items():
            self._lost_values[table] = self._lost_values.get(table, 0) + rows
        if tx.quarantined:
            self._quarantined.update(tx.quarantined)
        # The markers go into the last piece, because most transactions are a single piece.
        piece.records += self._end_markers(transaction, tx)
        piece.records += self._routes.pop_held_markers(transaction.end_lsn)
        if piece.records:
            yield piece.pop()

    def route_series(self, series: Series, room: int) -> RoutedSeries | None:
        """Route the next transactions of a series, until a piece or `room` is full.

        Args:
            series: Series, which continues after the routed transactions.
            room: Number of records, at least one, at which to stop.

        Returns:
            None if the next transaction is left to `route`.
        """
        if self._compiled is None or not self.routes_series or self._routes.begins:
            return None
        last = self._routes.history.last
        self._routes.enter(last)
        return self._compiled.route(series, self.ended, last, room)

    def _route_judged(
        self,
        verdicts: Verdicts,
        at: int,
        transaction: Transaction,
        tx: TransactionState,
        piece: Piece,
    ) -> Iterator[list[Record]]:
        """Yield full pieces of chunks whose rows have been judged by the server."""
        for chunk in verdicts.chunks(transaction):
            if chunk is None:
                self.awaits = verdicts.fileno()
                yield []
                continue
            self.awaits = None
            done = 0
            for place, change in [*chunk.changes.items(), (len(chunk.frames), None)]:
                frames = chunk.frames[done:place]
                yield from self._route_frames(frames, at, transaction, tx, piece)
                if change is not None:
                    change.publish(tx, piece.records)
                done = place + 1

    def learn(self, event: Transaction | PreparedTransaction) -> None:
        """Apply only the Relation messages of `event`: its rows are in Kafka, or not committed."""
        if isinstance(event, PreparedTransaction):
            self._announce(event.relations, event.streamed, None)
            return
        for frames in event.frames():
            relations = [frame for frame in frames if frame[XLOGDATA_HEADER] == _RELATION]
            self._announce(relations, event.streamed, event.xid)

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        """Return the record of a non-transactional message: commit_lsn = lsn, seq 0, no xid."""
        body = message.message
        headers = HeaderMaker(body.lsn, None, None, None).make(body.lsn, 0, b"m")
        return self._message_record(body, body.lsn, None, 0, headers)

    def mark(self, event: PreparedTransaction | RolledBack) -> list[Record]:
        """Return PREPARE or ROLLBACK_PREPARED markers, for subscriptions with ``two_phase``.

        Those whose previous owner has published them are left out. The Relation messages of a
        PREPARE are applied, as by `learn`.
        """
        if self._routes.begins:
            self._begin_tables(event.end_lsn)
        if isinstance(event, PreparedTransaction):
            self.learn(event)
            if self._verdicts is not None:
                self._verdicts.skip(event)
            kind = b"PREPARE"
            value = encode_prepare(
                gid=event.gid,
                xid=event.xid,
                end_lsn=event.end_lsn,
                prepare_time=event.prepare_time,
            )
        else:
            kind = b"ROLLBACK_PREPARED"
            value = encode_rollback_prepared(
                gid=event.gid,
                xid=event.xid,
                end_lsn=event.end_lsn,
                rollback_time=event.rollback_time,
            )
        headers = HeaderMaker(event.end_lsn, event.xid, None, event.gid).make(
            event.end_lsn, 0, kind
        )
        marked = {name for name, _ in self._routes.begins}
        return [
            self._addresses.marker(name, value, headers)
            for name in self._routes.two_phase
            if name not in marked
        ]

    def _is_inner(self, oid: int) -> bool:
        return self._inner is not None and self._inner.reads(oid)

    def _state(self, transaction: Transaction) -> TransactionState:
        origin = None if transaction.origin is None else transaction.origin.name
        settings = self._settings
        context = TransactionContext(
            settings.gateway,
            settings.database,
            settings.version,
            transaction.xid,
            transaction.commit_lsn,
            transaction.commit_time,
            origin,
            "false",
            self._now_ms(),
        )
        headers = HeaderMaker(transaction.commit_lsn, transaction.xid, origin, transaction.gid)
        return TransactionState(context, headers)

    def _route_frames(
        self,
        frames: Sequence[bytes],
        at: int,
        transaction: Transaction,
        tx: TransactionState,
        piece: Piece,
    ) -> Iterator[list[Record]]:
        """Dispatch by tag and yield full pieces; the loop runs once per row if not compiled."""
        route_of = self._routes.by_oid
        frame = b""
        place, end = 0, len(frames)
        try:
            while place < end:
                if piece.is_full():
                    yield piece.pop()
                frame = frames[place]
                tag = frame[XLOGDATA_HEADER]
                if tag not in _CHANGES:
                    self._route_other(frame, tag, transaction, tx, piece.records)
                    place += 1
                    continue
                route = route_of[int.from_bytes(frame[at : at + 4])]
                if route.compiled is not None:
                    reached = route.run(frames, place, at, tx, piece)
                    if reached > place:
                        place = reached
                        continue
                place += 1
                if tag == _INSERT:
                    route.insert(frame, at, tx, piece.records)
                elif tag == _UPDATE:
                    route.update(frame, at, tx, piece.records)
                else:
                    route.delete(frame, at, tx, piece.records)
        except UnannouncedError as error:
            raise ProtocolError(
                f"relation {error.oid} was never announced",
                tag=frame[XLOGDATA_HEADER : XLOGDATA_HEADER + 1],
                offset=at - XLOGDATA_HEADER,
            ) from error
        if piece.is_full():
            yield piece.pop()

    def _announce(self, frames: Sequence[bytes], streamed: bool, xid: int | None) -> None:
        for frame in frames:
            message = decode_message(frame, XLOGDATA_HEADER, streamed=streamed)
            assert isinstance(message, Relation)
            self._learn(message, xid)

    def _learn(self, relation: Relation, xid: int | None) -> None:
        """Apply a Relation message; the queries of catalog and registry may be slow."""
        if self._inner is not None:
            self._inner.learn(relation, committed=xid is not None)
        with self._answering():
            self._routes.announce(relation, xid)

    def _route_other(
        self,
        frame: bytes,
        tag: int,
        transaction: Transaction,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        message = decode_message(frame, XLOGDATA_HEADER, streamed=transaction.streamed)
        match message:
            case Relation():
                self._learn(message, transaction.xid)
            case Type():
                self._routes.projections.name_type(message)
            case Truncate():
                self._truncate(message, Lsn(int.from_bytes(frame[1:9])), tx, out)
            case LogicalMessage(prefix=prefix) if prefix in DDL_PREFIXES:
                with self._answering():
                    self._routes.apply_ddl(message, transaction.commit_lsn, transaction.xid)
            case LogicalMessage():
                tx.seq += 1
                tx.total_order += 1
                headers = tx.headers.make(message.lsn, tx.seq, b"m")
                out += self._message_record(
                    message, transaction.commit_lsn, transaction.xid, tx.seq, headers
                )
            case _:
                raise ProtocolError("does not belong in a transaction", tag=bytes((tag,)), offset=0)

    def _truncate(
        self, message: Truncate, lsn: Lsn, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a TRUNCATE statement: one number per relation; filters have no effect.

        A partition tree that is read by leaf and published as an ancestor is truncated if all its
        leaves are named, since the message does not contain the ancestor itself.
        """
        named = frozenset(message.relation_oids)
        done: set[str] = set()
        if tx.context.xid is not None:
            self._routes.truncate_copies(message.relation_oids, tx.context.xid)
        for oid in message.relation_oids:
            tx.seq += 1
            tx.total_order += 1
            for order in self._routes.by_oid[oid].orders:
                order.truncate(tx)
            for route, target in self._routes.truncated(oid, named):
                if target.topic in done or (tx.has_origin and target.skips_origins):
                    continue
                done.add(target.topic)
                route.truncate(lsn, tx, target, out)
            for moving in self._routes.by_oid[oid].moving:
                if self._routes.is_whole(moving.table_oid, oid, named):
                    moving.truncate(tx)

    def _message_record(
        self,
        message: LogicalMessage,
        commit_lsn: Lsn,
        xid: int | None,
        seq: int,
        headers: list[tuple[str, bytes]],
    ) -> list[Record]:
        if message.prefix not in self._settings.message_prefixes:
            return []
        what = f"a logical message with prefix {message.prefix!r}"
        topic = self._addresses.message_topic
        most_bytes = self._addresses.most_bytes(topic)
        try:
            check_value(what, len(message.content), topic, most_bytes)
            value = encode_message(
                message, commit_lsn=commit_lsn, xid=xid, seq=seq, ts_ms=self._now_ms()
            )
            record = self._addresses.message(value, headers)
            check_size(what, record, most_bytes)
        except RecordSizeError as error:
            errors = self._addresses.errors
            if errors is None or error.kind not in errors.kinds:
                error.place(f"at LSN {format_lsn(message.lsn)}")
                raise
            self._quarantined[topic, error.kind] += 1
            now_ms = self._now_ms()
            return [errors.message(error, message, commit_lsn, xid, seq, headers, now_ms)]
        return [record]

    def _end_markers(self, transaction: Transaction, tx: TransactionState) -> list[Record]:
        markers: list[Record] = []
        if not tx.touched:
            return markers
        headers = tx.headers.make(transaction.commit_lsn, tx.seq, b"END")
        common = encode_end_of(
            xid=transaction.xid,
            commit_lsn=transaction.commit_lsn,
            end_lsn=transaction.end_lsn,
            commit_time=transaction.commit_time,
            origin=tx.context.origin,
            gid=transaction.gid,
        )
        if self._compiled is not None and not transaction.end_lsn >> 63:
            return self._compiled.end(tx.touched, common, transaction.end_lsn, headers, self.ended)
        for subscription, topics in pop_counts(tx.touched).items():
            value = encode_end(common, topics)
            markers.append(self._addresses.marker(subscription, value, headers))
            self.ended[subscription] = transaction.end_lsn
        return markers
