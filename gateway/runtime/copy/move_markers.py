"""MOVE markers, and counters of rows that move."""

from __future__ import annotations

import logging
from typing import Final

from gateway.core.lsn import Lsn, format_lsn
from gateway.core.records import Record
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_move
from gateway.observe import Counters, event
from gateway.observe.moving import MovingTable
from gateway.routing.build.followed_tables import FollowedTables
from gateway.routing.build.topics import Addresses
from gateway.subselects.moves.standing import MoveStandings

__all__ = ["MoveMarkers"]

_LOG: Final = logging.getLogger(__name__)


class MoveMarkers:
    """Says when rows of a table begin to move and when they are settled.

    Args:
        followed: Outer tables and their moves.
        addresses: Topics of the markers.
        counters: Counters to keep.
    """

    def __init__(self, followed: FollowedTables, addresses: Addresses, counters: Counters) -> None:
        self._followed = followed
        self._addresses = addresses
        self._counters = counters
        self._standings = MoveStandings(followed.following.moves)
        self._count()

    def records(self, lsn: Lsn) -> list[Record]:
        """Return the markers to commit with everything up to `lsn`, and count."""
        records: list[Record] = []
        changes = self._standings.pop_changes()
        headers = HeaderMaker(lsn, None, None, None).make(lsn, 0, b"MOVE") if changes else []
        for name, oid, settled in changes:
            table = self._followed.outer[oid].table
            value = encode_move(lsn, schema=table.schema, table=table.name, settled=settled)
            records.append(self._addresses.marker(name, value, headers))
            event(
                _LOG,
                logging.INFO,
                "rows that moved are settled" if settled else "rows move",
                subscription=name,
                relation=table,
                lsn=format_lsn(lsn),
            )
        self._count()
        return records

    def _count(self) -> None:
        for oid, moves in self._followed.following.moves.items():
            table = str(self._followed.outer[oid].table)
            for name, rows in moves.progress.pop_total().items():
                before = self._counters.moved_rows.get((name, table), 0)
                self._counters.moved_rows[name, table] = before + rows
        self._counters.moving = tuple(
            MovingTable(
                each.subscription,
                str(self._followed.outer[each.table_oid].table),
                each.since,
                each.unsettled,
                each.moved_rows,
            )
            for each in self._standings.standings
        )
