"""A router that says of each item what it is, so that the checker can compare it with the WAL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.core.records import Record
from gateway.core.watermark import LastCommit
from gateway.pgoutput.frames import XLOGDATA_HEADER
from gateway.routing.short_transactions import RoutedSeries
from gateway.transactions import (
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)
from tests.support.gateway.routers import RouterOfTests, record

__all__ = ["SUBSCRIPTION", "PlainRouter"]

SUBSCRIPTION: Final = "s"
_INSERT: Final = ord("I")
_PIECE: Final = 3


class PlainRouter(RouterOfTests):
    """`gateway.runtime.ports.TransactionRouter`: ``ROW xid value``, ``END xid``, and the like."""

    def foresee(self, item: Transaction | PreparedTransaction) -> None:
        pass

    def learn(self, event: Transaction | PreparedTransaction) -> None:
        pass

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        records = [
            record(b"ROW %d %d" % (transaction.xid, int(frame[-10:])))
            for frames in transaction.frames()
            for frame in frames
            if frame[XLOGDATA_HEADER] == _INSERT
        ]
        if not records:
            return
        for at in range(0, len(records), _PIECE):
            yield records[at : at + _PIECE]
        self.ended[SUBSCRIPTION] = transaction.end_lsn
        yield [record(b"END %d" % transaction.xid)]

    def route_series(self, series: Series, room: int) -> RoutedSeries | None:
        records: list[Record] = []
        routed: list[Transaction] = []
        while series and (not routed or len(records) < room):
            transaction = series.pop()
            routed.append(transaction)
            records += [record for piece in self.route(transaction) for record in piece]
        last = routed[-1]
        return RoutedSeries(
            records,
            len(routed),
            last.end_lsn,
            LastCommit(last.commit_lsn, last.xid, last.commit_time),
        )

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        return [record(b"NOTE " + message.message.content)]

    def mark(self, event: PreparedTransaction | RolledBack) -> list[Record]:
        kind = b"PREPARE" if isinstance(event, PreparedTransaction) else b"ROLLBACK"
        return [record(b"%s %d" % (kind, event.xid))]
