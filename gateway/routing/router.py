"""Committed transactions in, Kafka records out: numbering, routing, markers.

Numbers (``seq``, ``total_order``) are given in commit order over every change that survives, before
anything is filtered; so a replay, streamed or not, gives the same numbers. Each subscription that
had a record gets an END marker behind its records. Work that depends on a relation is done when
the relation is announced (`RelationRoutes`), not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import (
    encode_end,
    encode_message,
    encode_prepare,
    encode_progress_marker,
    encode_rollback_prepared,
)
from gateway.errors import ProtocolError
from gateway.lsn import Lsn, format_lsn
from gateway.pgoutput.decoder import decode_message
from gateway.pgoutput.messages import LogicalMessage, Relation, Truncate, Type
from gateway.records import Record
from gateway.routing.routes import RelationRoutes, RoutingSettings
from gateway.routing.state import TransactionState
from gateway.routing.totals import Totals
from gateway.rowfilter import FilterEvaluationError
from gateway.transactions import Prepared, RolledBack, StandaloneMessage, Transaction

__all__ = ["Router", "RoutingSettings"]

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970-01-01."""

_MESSAGE_AT: Final = 25
_INSERT: Final = ord("I")
_UPDATE: Final = ord("U")
_DELETE: Final = ord("D")
_TRUNCATE: Final = ord("T")
_RELATION: Final = ord("R")
_TYPE: Final = ord("Y")
_MESSAGE: Final = ord("M")


class Router:
    """Routes one slot's transactions. Not thread-safe; owns the running totals.

    Attributes:
        ended: Per subscription, the end of the last transaction that got an END marker.
    """

    def __init__(
        self,
        routes: RelationRoutes,
        totals: Totals,
        settings: RoutingSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._routes = routes
        self._totals = totals
        self._settings = settings
        self._now_ms = now_ms
        self.ended: dict[str, Lsn] = {}
        self._lost_values: dict[str, int] = {}
        self._quarantined: dict[str, int] = {}

    def take_lost_values(self) -> dict[str, int]:
        """Return, per table since the last call, the rows that were sent with NULL for a value.

        That is when a filter makes an INSERT of an UPDATE of the key whose unchanged TOAST columns
        are not in the stream; a native subscriber gets NULL as well.
        """
        lost, self._lost_values = self._lost_values, {}
        return lost

    def take_quarantined(self) -> dict[str, int]:
        """Return, per table since the last call, the records made for the error topic."""
        quarantined, self._quarantined = self._quarantined, {}
        return quarantined

    def take_totals(self) -> Mapping[str, tuple[int, ...]]:
        """Return the running totals that have changed since the last call, to be committed."""
        return self._totals.take_changed()

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        """Yield the records of `transaction` in bounded pieces, its END markers at the end.

        Raises:
            ProtocolError: a message does not parse, or speaks of a relation never announced.
            FilterEvaluationError: a filter raised, as it would have in PostgreSQL; not where such
                rows are quarantined.
            SchemaError, ValueFormatError: a row cannot be published.
            TransientError: the registry or the catalog could not be reached.
        """
        tx = self._state(transaction)
        at = _MESSAGE_AT + (5 if transaction.streamed else 1)
        for frames in transaction.frames():
            out: list[Record] = []
            self._route_frames(frames, at, transaction, tx, out)
            if out:
                yield out
        for table, rows in tx.lost_values.items():
            self._lost_values[table] = self._lost_values.get(table, 0) + rows
        for table, rows in tx.quarantined.items():
            self._quarantined[table] = self._quarantined.get(table, 0) + rows
        end = self._end_markers(transaction, tx)
        if end:
            yield end

    def learn(self, event: Transaction | Prepared) -> None:
        """Take in the relations that `event` announces; its rows are in Kafka already, or held."""
        if isinstance(event, Prepared):
            self._announce(event.relations, event.streamed)
            return
        for frames in event.frames():
            relations = [frame for frame in frames if frame[_MESSAGE_AT] == _RELATION]
            self._announce(relations, event.streamed)

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        """Return the record of a non-transactional message: commit_lsn = lsn, seq 0, no xid."""
        body = message.message
        headers = HeaderMaker(body.lsn, None, None, None).make(body.lsn, 0, b"m")
        return self._message_record(body, body.lsn, None, 0, headers)

    def mark(self, event: Prepared | RolledBack) -> list[Record]:
        """Return PREPARE or ROLLBACK_PREPARED markers, for subscriptions with ``two_phase``.

        A PREPARE's relations are taken in, as by `learn`.
        """
        if isinstance(event, Prepared):
            self.learn(event)
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
        return [self._routes.marker(name, value, headers) for name in self._routes.two_phase]

    def progress(self, subscriptions: Sequence[str], end_lsn: Lsn) -> list[Record]:
        """Return PROGRESS markers: everything up to `end_lsn` has been published."""
        headers = HeaderMaker(end_lsn, None, None, None).make(end_lsn, 0, b"PROGRESS")
        value = encode_progress_marker(end_lsn)
        return [self._routes.marker(name, value, headers) for name in subscriptions]

    def _state(self, transaction: Transaction) -> TransactionState:
        origin = None if transaction.origin is None else transaction.origin.name
        context = TransactionContext(
            gateway=self._settings.gateway,
            db=self._settings.database,
            version=self._settings.version,
            xid=transaction.xid,
            commit_lsn=transaction.commit_lsn,
            commit_time=transaction.commit_time,
            origin=origin,
            snapshot="false",
            ts_ms=self._now_ms(),
        )
        headers = HeaderMaker(transaction.commit_lsn, transaction.xid, origin, transaction.gid)
        return TransactionState(context, headers)

    def _route_frames(
        self,
        frames: Sequence[bytes],
        at: int,
        transaction: Transaction,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Dispatch by tag; this loop runs once per row."""
        route_of = self._routes.by_oid
        frame = b""
        try:
            for frame in frames:
                tag = frame[_MESSAGE_AT]
                if tag == _INSERT:
                    route_of[int.from_bytes(frame[at : at + 4])].insert(frame, at, tx, out)
                elif tag == _UPDATE:
                    route_of[int.from_bytes(frame[at : at + 4])].update(frame, at, tx, out)
                elif tag == _DELETE:
                    route_of[int.from_bytes(frame[at : at + 4])].delete(frame, at, tx, out)
                else:
                    self._route_other(frame, tag, transaction, tx, out)
        except KeyError as error:
            raise ProtocolError(
                f"relation {error.args[0]} was never announced",
                tag=frame[_MESSAGE_AT : _MESSAGE_AT + 1],
                offset=at - _MESSAGE_AT,
            ) from error
        except FilterEvaluationError as error:
            raise FilterEvaluationError(
                f"{error.reason} (row at LSN {format_lsn(int.from_bytes(frame[1:9]))}, "
                f"transaction {transaction.xid})",
                error.source,
            ) from error

    def _announce(self, frames: Sequence[bytes], streamed: bool) -> None:
        for frame in frames:
            message = decode_message(frame, _MESSAGE_AT, streamed=streamed)
            assert isinstance(message, Relation)
            self._routes.announce(message)

    def _route_other(
        self,
        frame: bytes,
        tag: int,
        transaction: Transaction,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        message = decode_message(frame, _MESSAGE_AT, streamed=transaction.streamed)
        match message:
            case Relation():
                self._routes.announce(message)
            case Type():
                pass  # names of types come from the catalog
            case Truncate():
                self._truncate(message, Lsn(int.from_bytes(frame[1:9])), tx, out)
            case LogicalMessage():
                tx.seq += 1
                tx.total_order += 1
                headers = tx.headers.make(message.lsn, tx.seq, b"m")
                out += self._message_record(
                    message, transaction.commit_lsn, transaction.xid, tx.seq, headers
                )
            case _:
                raise ProtocolError(
                    "does not belong into a transaction", tag=bytes((tag,)), offset=0
                )

    def _truncate(
        self, message: Truncate, lsn: Lsn, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a TRUNCATE statement: one number per relation; filters have no effect.

        A tree that is read by leaf and published under an ancestor is truncated when all its leaves
        are named; the ancestor itself is not in the message then.
        """
        named = frozenset(message.relation_oids)
        done: set[str] = set()
        for oid in message.relation_oids:
            tx.seq += 1
            tx.total_order += 1
            for order in self._routes.by_oid[oid].orders:
                order.advance(tx)
            for group, taker in self._routes.truncated(oid, named):
                if taker.topic in done or (tx.has_origin and taker.skips_origins):
                    continue
                done.add(taker.topic)
                group.truncate(lsn, tx, taker, out)

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
        value = encode_message(
            message, commit_lsn=commit_lsn, xid=xid, seq=seq, ts_ms=self._now_ms()
        )
        return [self._routes.message(value, headers)]

    def _end_markers(self, transaction: Transaction, tx: TransactionState) -> list[Record]:
        headers = tx.headers.make(transaction.commit_lsn, tx.seq, b"END")
        markers = []
        for subscription, counts in self._totals.settle():
            value = encode_end(
                xid=transaction.xid,
                commit_lsn=transaction.commit_lsn,
                end_lsn=transaction.end_lsn,
                commit_time=transaction.commit_time,
                origin=tx.context.origin,
                gid=transaction.gid,
                partitions=[(c.topic, c.partition, c.records, c.total) for c in counts],
            )
            markers.append(self._routes.marker(subscription, value, headers))
            self.ended[subscription] = transaction.end_lsn
        return markers
