"""Route of one announced relation: decodes and numbers tuples, and passes them to its projections.

``seq`` and ``total_order`` are assigned before filtering, so that they do not depend on the
definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.core.errors import ProtocolError
from gateway.core.records import Record
from gateway.pgoutput import letters
from gateway.pgoutput.frames import XLOGDATA_HEADER, oid_position, read_begin
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.pgoutput.tuples import split_tuple
from gateway.routing.row.binary_rows import RowToText
from gateway.routing.row.filters import Asking
from gateway.routing.row.moving_route import MovingRoute
from gateway.routing.row.native import CompiledRows
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.record_buffer import Piece
from gateway.routing.row.targets import Row
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import fill_unchanged

__all__ = ["Change", "RelationRoute"]

LARGE: Final = 1 << 20
"""Size of a frame, in bytes, above which values are checked before they are encoded."""

_INSERT: Final = ord(letters.TAG_INSERT)
_DELETE: Final = ord(letters.TAG_DELETE)
_BEGIN: Final = ord(letters.TAG_BEGIN)
_COMMIT: Final = ord(letters.TAG_COMMIT)
_NEW: Final = letters.TUPLE_NEW.encode()
_KEY: Final = letters.TUPLE_KEY.encode()
_OLD: Final = letters.TUPLE_OLD.encode()


@dataclass(slots=True)
class Change:
    """Decoded row change that has not been routed yet.

    Attributes:
        full: Whether `old` has all columns, not only those of the replica identity.
    """

    route: RelationRoute
    lsn: int
    old: Row | None
    full: bool
    new: Row | None
    is_insert: bool = False

    def publish(self, tx: TransactionState, out: list[Record]) -> None:
        """Number the change and route it."""
        if self.new is None:
            assert self.old is not None
            self.route.publish_delete(self.old, self.full, self.lsn, tx, out)
        elif self.is_insert:
            self.route.publish_insert(self.new, self.lsn, tx, out)
        else:
            self.route.publish_update(self.old, self.full, self.new, self.lsn, tx, out)


class Watch(Protocol):
    """Observer of a relation's changes (`gateway.routing.row.copied_rows.CopyWatch`)."""

    def insert(self, row: Row, tx: TransactionState) -> None:
        """Observe an INSERT."""

    def update(self, old: Row | None, new: Row, tx: TransactionState) -> None:
        """Observe an UPDATE."""

    def delete(self, old: Row, tx: TransactionState) -> None:
        """Observe a DELETE."""


class RelationRoute:
    """Prepared route of one announced relation.

    Attributes:
        columns: Number of columns of its tuples.
        to_text: Conversion of binary values to text; None if all values arrive as text.
        asking: Question that the server is asked about its rows, or None.
        watches: Copies in progress that observe its changes.
        moving: Routes to the targets whose filters have sub-selects.
        compiled: C path, tried first for each change, or None.
    """

    __slots__ = (
        "asking",
        "columns",
        "compiled",
        "moving",
        "name",
        "orders",
        "projection_routes",
        "relation_oid",
        "to_text",
        "watches",
    )

    def __init__(
        self,
        relation_oid: int,
        name: str,
        columns: int,
        projection_routes: Sequence[ProjectionRoute],
        to_text: RowToText | None = None,
        asking: Asking | None = None,
        watches: Iterable[Watch] = (),
        compiled: CompiledRows | None = None,
        moving: Sequence[MovingRoute] = (),
    ) -> None:
        self.relation_oid = relation_oid
        self.name = name
        self.columns = columns
        self.projection_routes = projection_routes
        self.to_text = to_text
        self.asking = asking
        self.watches = watches
        self.compiled = compiled
        self.moving = moving
        # Projections of one table share its order, which counts changes, not records.
        self.orders = list({id(route.order): route.order for route in projection_routes}.values())

    def run(
        self, frames: Sequence[bytes], place: int, at: int, tx: TransactionState, piece: Piece
    ) -> int:
        """Route frames by the compiled path, as `CompiledRows.run`, if there is one."""
        if self.compiled is None or not all(moving.is_calm(tx) for moving in self.moving):
            return place
        reached = self.compiled.run(frames, place, at, tx, piece)
        if self.moving and reached > place:
            assert tx.context.xid is not None
            self._note(frames[place:reached], at, tx.context.xid)
        return reached

    def note_series(self, frames: Sequence[bytes]) -> None:
        """Note whole transactions of a series that were routed in C, for moves."""
        own: list[bytes] = []
        oid, at, xid = self.relation_oid.to_bytes(4), oid_position(streamed=False), 0
        for frame in frames:
            tag = frame[XLOGDATA_HEADER]
            if tag == _BEGIN:
                begun = read_begin(frame)
                assert begun is not None
                own, xid = [], begun[2]
            elif tag == _COMMIT:
                if own:
                    self._note(own, at, xid)
            elif frame[at : at + 4] == oid:
                own.append(frame)

    def _note(self, frames: Sequence[bytes], at: int, xid: int) -> None:
        for moving in self.moving:
            moving.note(lambda: [self.read(frame, at) for frame in frames], xid)

    def read(self, frame: bytes, at: int) -> Change:
        """Decode the Insert, Update or Delete whose relation OID is at `at` in `frame`."""
        lsn, tag = int.from_bytes(frame[1:9]), frame[XLOGDATA_HEADER]
        if tag == _INSERT:
            return Change(self, lsn, None, False, self._read_insert(frame, at), is_insert=True)
        if tag == _DELETE:
            old, full = self._read_delete(frame, at)
            return Change(self, lsn, old, full, None)
        before, full, new = self._read_update(frame, at)
        return Change(self, lsn, before, full, new)

    def insert(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Insert whose relation OID is at `at` in `frame`."""
        tx.large = len(frame) > LARGE
        self.publish_insert(self._read_insert(frame, at), int.from_bytes(frame[1:9]), tx, out)

    def update(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Update whose relation OID is at `at` in `frame`."""
        tx.large = len(frame) > LARGE
        old, full, new = self._read_update(frame, at)
        self.publish_update(old, full, new, int.from_bytes(frame[1:9]), tx, out)

    def delete(self, frame: bytes, at: int, tx: TransactionState, out: list[Record]) -> None:
        """Route the Delete whose relation OID is at `at` in `frame`."""
        tx.large = len(frame) > LARGE
        old, full = self._read_delete(frame, at)
        self.publish_delete(old, full, int.from_bytes(frame[1:9]), tx, out)

    def publish_insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Number an INSERT and publish it."""
        tx.seq += 1
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for route in self.projection_routes:
            route.insert(row, lsn, tx, out)
        for moving in self.moving:
            moving.insert(row, lsn, tx, out)
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
        """Number an UPDATE and publish it."""
        tx.seq += 2
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for route in self.projection_routes:
            route.update(old, full, new, lsn, tx, out)
        for moving in self.moving:
            moving.update(old, full, new, lsn, tx, out)
        for watch in self.watches:
            watch.update(old, new, tx)

    def publish_delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Number a DELETE and publish it."""
        tx.seq += 1
        tx.total_order += 1
        for order in self.orders:
            order.advance(tx)
        for route in self.projection_routes:
            route.delete(old, full, lsn, tx, out)
        for moving in self.moving:
            moving.delete(old, full, lsn, tx, out)
        for watch in self.watches:
            watch.delete(old, tx)

    def _read_insert(self, frame: bytes, at: int) -> Row:
        if frame[at + 4 : at + 5] != _NEW:
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
        full = tag == _OLD
        if full or tag == _KEY:
            old, end = split_tuple(frame, at + 5)
            tag = frame[end : end + 1]
        if tag != _NEW:
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
        tag = frame[at + 4 : at + 5]
        if tag not in (_KEY, _OLD):
            raise _unexpected(frame, at + 4, "K or O")
        old, end = split_tuple(frame, at + 5)
        self._check(frame, old, end)
        if self.to_text is not None:
            self.to_text(old)
        return old, tag == _OLD

    def _check(self, frame: bytes, row: Row, end: int) -> None:
        if end != len(frame):
            raise ProtocolError(
                f"{len(frame) - end} bytes left over",
                tag=_tag_of(frame),
                offset=end - XLOGDATA_HEADER,
            )
        if len(row) != self.columns:
            raise ProtocolError(
                f"{len(row)} columns for relation {self.name}, announced with {self.columns}",
                tag=_tag_of(frame),
                offset=0,
            )


def _unexpected(frame: bytes, at: int, wanted: str) -> ProtocolError:
    return ProtocolError(
        f"expected tuple tag {wanted}, found {frame[at : at + 1]!r}",
        tag=_tag_of(frame),
        offset=at - XLOGDATA_HEADER,
    )


def _tag_of(frame: bytes) -> bytes:
    return frame[XLOGDATA_HEADER : XLOGDATA_HEADER + 1]
