"""Short transactions as a whole, in C: rows, numbers and END markers of many in one call.

The same records as `gateway.routing.router.Router.route` gives, which takes the transactions that
are left: see `gateway.routing.row.native`. Of these, the END markers are made here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.lsn import Lsn
from gateway.core.records import Feed, Header, LastCommit, Record
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.counters import TopicCounter
from gateway.routing.row.native import ROWS, why_interpreted
from gateway.routing.row.record_buffer import PIECE_BYTES, PIECE_RECORDS
from gateway.transactions import Series

__all__ = ["RoutedSeries", "SeriesRouter", "series_router"]


@dataclass(slots=True)
class RoutedSeries:
    """Some transactions of a series, at least one.

    Attributes:
        end_lsn: Of the last one, and so is `last`.
    """

    records: list[Record]
    transactions: int
    end_lsn: Lsn
    last: LastCommit


class SeriesRouter:
    """Routes short transactions by routes that have been built, and makes all END markers.

    Args:
        rows: What routes, in C; made for the feeds of `routes`.
        now_ms: Milliseconds since 1970-01-01 00:00 UTC.
    """

    def __init__(self, rows: Any, routes: RelationRoutes, now_ms: Callable[[], int]) -> None:
        self._run = rows.run
        self._end = rows.end
        self._routes = routes
        self._now_ms = now_ms

    def route(
        self, series: Series, ended: dict[str, Lsn], least_lsn: Lsn, room: int
    ) -> RoutedSeries | None:
        """Route what makes a piece, up to the first transaction that is left to `Router.route`.

        Args:
            series: Goes on behind what was routed.
            ended: As `Router.ended`.
            least_lsn: A transaction with a change before it is left.
            room: With so many records, at least one, it is enough.

        Returns:
            None: the next transaction is left to `Router.route`.
        """
        records: list[Record] = []
        changed: list[tuple[int, int]] = []
        place, transactions = self._run(
            *(series.frames, series.place, self._rows_of, self._now_ms(), least_lsn),
            *(min(room, PIECE_RECORDS), PIECE_RECORDS, PIECE_BYTES, records, ended, changed),
        )
        for oid, changes in changed:
            compiled = self._routes.by_oid[oid].compiled
            assert compiled is not None
            compiled.count(changes)
        if not transactions:
            return None
        commit_lsn, end_lsn, xid, commit_time = series.skip(place, transactions)
        last = LastCommit(commit_lsn, xid, commit_time)
        return RoutedSeries(records, transactions, end_lsn, last)

    def end(
        self,
        counters: list[TopicCounter],
        common: bytes,
        end_lsn: Lsn,
        headers: list[Header],
        ended: dict[str, Lsn],
    ) -> list[Record]:
        """End a transaction that was routed by itself: `take_counts`, and END markers from that.

        Args:
            counters: As for `take_counts`.
            common: What `gateway.envelope.markers.encode_end_of` returned.
            end_lsn: Of the transaction; below 2**63.
            headers: Of the markers.
            ended: As `Router.ended`.
        """
        markers: list[Record] = []
        self._end(counters, common, end_lsn, headers, markers, ended)
        return markers

    def _rows_of(self, oid: int) -> Any:
        # One that is not built yet is built where what that brings can be dealt with.
        route = self._routes.by_oid.get(oid)
        return None if route is None or route.compiled is None else route.compiled.rows


def series_router(
    routes: RelationRoutes,
    gateway_part: bytes,
    feeds: Sequence[Feed],
    now_ms: Callable[[], int],
) -> SeriesRouter | None:
    """Prepare to route short transactions; None where nothing is compiled.

    Args:
        routes: In force.
        gateway_part: What records say of the gateway.
        feeds: Of `routes`.
        now_ms: As for `SeriesRouter`.
    """
    if why_interpreted() is not None or isinstance(ROWS, str):
        return None
    described = tuple((feed.subscription, feed.markers, feed.prefix) for feed in feeds)
    return SeriesRouter(ROWS.Series(gateway_part, described), routes, now_ms)
