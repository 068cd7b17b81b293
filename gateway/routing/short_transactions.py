"""Routing of whole short transactions in C: rows, numbers and END markers of many in one call.

The records are the same as those of `gateway.routing.router.Router.route`, which routes all other
transactions; see `gateway.routing.row.native`. The END markers of the others are made here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway._speedups import layouts
from gateway.core.lsn import Lsn
from gateway.core.records import Feed, Header, Record
from gateway.core.watermark import LastCommit
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.counters import TopicCounter
from gateway.routing.row.native import ROWS, why_interpreted
from gateway.routing.row.record_buffer import PIECE_BYTES, PIECE_RECORDS
from gateway.transactions import Series

__all__ = ["RoutedSeries", "SeriesRouter", "series_router"]


@dataclass(slots=True)
class RoutedSeries:
    """Records of some transactions of a series, at least one.

    Attributes:
        end_lsn: End of the last transaction.
        last: Identity of the last transaction.
    """

    records: list[Record]
    transactions: int
    end_lsn: Lsn
    last: LastCommit


class SeriesRouter:
    """Router of short transactions over existing routes, and maker of all END markers.

    Args:
        rows: Router in C, made for the feeds of `routes`.
        now_ms: Clock, in milliseconds since 1970-01-01 00:00 UTC.
        is_left: Whether transactions with changes of a relation are left to `Router.route`.
    """

    def __init__(
        self,
        rows: Any,
        routes: RelationRoutes,
        now_ms: Callable[[], int],
        is_left: Callable[[int], bool],
    ) -> None:
        self._run = rows.run
        self._end = rows.end
        self._routes = routes
        self._now_ms = now_ms
        self._is_left = is_left

    def route(
        self, series: Series, ended: dict[str, Lsn], least_lsn: Lsn, room: int
    ) -> RoutedSeries | None:
        """Route one piece, up to the first transaction that is left to `Router.route`.

        Args:
            series: Series, which continues after the routed transactions.
            ended: As `Router.ended`.
            least_lsn: Position before which a change leaves its transaction to `Router.route`.
            room: Number of records, at least one, at which to stop.

        Returns:
            None if the next transaction is left to `Router.route`.
        """
        records: list[Record] = []
        changed: list[tuple[int, int]] = []
        place, transactions = self._run(
            *(series.frames, series.place, self._rows_of, self._now_ms(), least_lsn),
            *(min(room, PIECE_RECORDS), PIECE_RECORDS, PIECE_BYTES, records, ended, changed),
        )
        for oid, changes in changed:
            route = self._routes.by_oid[oid]
            assert route.compiled is not None
            route.compiled.count(changes)
            if route.moving:
                route.note_series(series.frames[series.place : place])
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
        """Finish a transaction routed by `Router.route`: `pop_counts` and END markers.

        Args:
            counters: As for `pop_counts`.
            common: Result of `gateway.envelope.markers.encode_end_of`.
            end_lsn: End of the transaction; below 2**63.
            headers: Headers of the markers.
            ended: As `Router.ended`.
        """
        markers: list[Record] = []
        self._end(counters, common, end_lsn, headers, markers, ended)
        return markers

    def _rows_of(self, oid: int) -> Any:
        # `Router.route`, which handles errors, builds a route that does not exist yet.
        route = self._routes.by_oid.get(oid)
        if route is None or route.compiled is None or self._is_left(oid):
            return None
        return route.compiled.rows if all(m.is_calm(None) for m in route.moving) else None


def series_router(
    routes: RelationRoutes,
    gateway_part: bytes,
    feeds: Sequence[Feed],
    now_ms: Callable[[], int],
    is_left: Callable[[int], bool] = lambda oid: False,
) -> SeriesRouter | None:
    """Return a router of short transactions; None if the C module is not in use.

    Args:
        routes: Routes in force.
        gateway_part: Part of each record that identifies the gateway.
        feeds: Feeds of `routes`.
        now_ms: As for `SeriesRouter`.
        is_left: As for `SeriesRouter`.
    """
    if why_interpreted() is not None or isinstance(ROWS, str):
        return None
    described = tuple(layouts.Feed(feed.subscription, feed.markers, feed.prefix) for feed in feeds)
    return SeriesRouter(ROWS.Series(gateway_part, described), routes, now_ms, is_left)
