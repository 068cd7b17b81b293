"""Row filters evaluated by the server: rows are collected, judged in batches and routed in order.

Chunks of frames are read ahead of the router, over all waiting transactions:

    foresee ──► read: rows that need the server ──► ask: one statement for each table ──► route

While the server works on a batch, the router works on the previous one, the next one is received,
and the sink commits finished records. Numbers and positions are assigned when a row is routed, so
nothing depends on when the answer arrives. Reading ahead stops at a Relation message, which may
change the question, until the router has applied it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias, cast

from gateway.core.descriptors import wait_readable
from gateway.core.errors import GatewayError
from gateway.definitions.ddl.alterations import PREFIX
from gateway.definitions.model import Operation
from gateway.pgoutput import letters
from gateway.pgoutput.frames import XLOGDATA_HEADER, oid_position
from gateway.pgoutput.messages import UNCHANGED
from gateway.routing.ports import Evaluator, UnannouncedError
from gateway.routing.row.filters import Asking
from gateway.routing.row.relation_route import Change, RelationRoute
from gateway.routing.row.targets import Row
from gateway.rowfilter import Answer, JudgedRow, Question
from gateway.rowfilter.evaluation.reading import unsent
from gateway.rowfilter.server.question import RAISED
from gateway.transactions import PreparedTransaction, Transaction

__all__ = ["Chunk", "Verdicts", "attach", "judge", "judge_rows"]

BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 1 << 20
"""Limits of one statement; the chunk that reaches one of them still belongs to it."""
AHEAD_BYTES: Final = 4 << 20
"""Maximum total size in bytes of frames that are read and not routed."""

_WAIT_S: Final = 0.5
_RELATION: Final = ord("R")
_MESSAGE: Final = ord("M")
_DDL_PREFIXES: Final = PREFIX.encode() + b"\0"
_CHANGES: Final = {
    ord(letters.TAG_INSERT): Operation.INSERT,
    ord(letters.TAG_UPDATE): Operation.UPDATE,
    ord(letters.TAG_DELETE): Operation.DELETE,
}

Ahead: TypeAlias = Transaction | PreparedTransaction


@dataclass(slots=True, eq=False)
class Chunk:
    """Frames of a transaction, or the Relation messages of a PREPARE.

    Attributes:
        announces: Whether its frames are Relation or DDL messages.
        changes: Changes decoded so far, by index of the frame.
        pending: Number of unanswered batches with rows of this chunk.
    """

    transaction: Ahead
    frames: Sequence[bytes]
    announces: bool
    size: int
    changes: dict[int, Change] = field(default_factory=dict)
    pending: int = 0


@dataclass(slots=True, eq=False)
class _Batch:
    """Rows of one table that one statement asks about."""

    rows: list[JudgedRow] = field(default_factory=list)
    values: list[Sequence[bytes | None]] = field(default_factory=list)
    size: int = 0
    chunks: list[Chunk] = field(default_factory=list)


class Verdicts:
    """Reader ahead of the router that asks the server about rows.

    Args:
        route_of: Routes by relation OID; a look-up raises UnannouncedError for a relation that was
            never announced.
    """

    def __init__(self, evaluator: Evaluator, route_of: Mapping[int, RelationRoute]) -> None:
        self._evaluator = evaluator
        self._route_of = route_of
        self._expected: deque[Ahead] = deque()
        self._unread = self._cut()
        self._next: Chunk | None = None
        self._ahead: deque[Ahead] = deque()
        self._chunks: deque[Chunk] = deque()
        self._size = 0
        self._batches: dict[Question, _Batch] = {}
        self._asked: _Batch | None = None

    def fileno(self) -> int:
        """File descriptor that becomes readable when there may be an answer."""
        return self._evaluator.fileno()

    def foresee(self, item: Ahead) -> None:
        """Announce the next item to be routed or marked, in the order of these calls."""
        self._expected.append(item)
        self._ahead.append(item)
        self._advance()

    def chunks(self, item: Ahead) -> Iterator[Chunk | None]:
        """Yield the chunks of `item`, which is routed next; None while the first one is not judged.

        Raises:
            ProtocolError, SchemaError, ...: a row cannot be decoded.
            TransientError: the connection was lost.
        """
        if not self._expected:
            self.foresee(item)
        # In another order it would get the chunks of another transaction and lose its rows.
        assert self._expected[0] is item, "routed in another order than announced"
        self._expected.popleft()
        while True:
            self._advance()
            if not self._chunks:
                if not self._read_next():
                    return
                continue  # `_advance` sends its rows now
            chunk = self._chunks[0]
            if chunk.transaction is not item:
                return
            if chunk.pending:
                yield None
            else:
                self._chunks.popleft()
                self._size -= chunk.size
                yield chunk

    def skip(self, mark: PreparedTransaction) -> None:
        """Continue reading after the Relation messages of a PREPARE, which have been applied."""
        for _ in self.chunks(mark):
            pass

    def _advance(self) -> None:
        """Collect the answer if it has arrived; ask the next question if the server is free."""
        if self._asked is not None:
            answer = self._evaluator.collect()
            if answer is None:
                return
            batch, self._asked = self._asked, None
            attach(batch.rows, answer)
            for chunk in batch.chunks:
                chunk.pending -= 1
        try:
            while self._size < AHEAD_BYTES and not self._is_batch_full() and self._read_next():
                pass
        except GatewayError:
            pass  # raised again when the router reaches it
        for question, batch in self._batches.items():
            del self._batches[question]
            self._asked = batch
            self._evaluator.ask(question, batch.values)
            return

    def _is_batch_full(self) -> bool:
        return any(
            len(batch.rows) >= BATCH_ROWS or batch.size >= BATCH_BYTES
            for batch in self._batches.values()
        )

    def _read_next(self) -> bool:
        """Read a chunk; False if there is none, or if an earlier one may change how to read it."""
        if self._chunks and self._chunks[-1].announces:
            return False
        if self._next is None:
            self._next = next(self._unread, None)
            if self._next is None:
                self._unread = self._cut()  # an exhausted generator would miss later items
                return False
        if not self._next.announces:
            self._read(self._next)
        self._chunks.append(self._next)
        self._size += self._next.size
        self._next = None
        return True

    def _cut(self) -> Iterator[Chunk]:
        """Cut the announced transactions into chunks; Relation and DDL messages get their own."""
        while self._ahead:
            item = self._ahead.popleft()
            if isinstance(item, PreparedTransaction):
                yield Chunk(item, item.relations, True, 0)
                continue
            for frames in item.frames():
                for announces, part in groupby(frames, _announces):
                    found = list(part)
                    yield Chunk(item, found, announces, sum(map(len, found)))

    def _read(self, chunk: Chunk) -> None:
        """Decode the rows of a chunk that the server may have to judge, and add them to batches."""
        at = oid_position(streamed=chunk.transaction.streamed)
        asked: dict[Question, list[tuple[JudgedRow, Sequence[bytes | None]]]] = {}
        changes = {}
        for place, frame in enumerate(chunk.frames):
            operation = _CHANGES.get(frame[XLOGDATA_HEADER])
            if operation is None:
                continue
            try:
                route = self._route_of[int.from_bytes(frame[at : at + 4])]
            except UnannouncedError:
                continue  # raised by the router
            if route.asking is None or operation not in route.asking.needed:
                continue
            changes[place] = change = route.read(frame, at)
            rows = judge(route.asking, operation, change)
            if rows:
                asked.setdefault(route.asking.question, []).extend(rows)
        chunk.changes = changes
        for question, found in asked.items():
            batch = self._batches.setdefault(question, _Batch())
            batch.chunks.append(chunk)
            chunk.pending += 1
            for row, values in found:
                batch.rows.append(row)
                batch.values.append(values)
                batch.size += sum(len(value) for value in values if value is not None)


def judge(
    asking: Asking, operation: Operation, change: Change
) -> list[tuple[JudgedRow, Sequence[bytes | None]]]:
    """Replace the row versions that the server must judge; return these with their values."""
    asked: list[tuple[JudgedRow, Sequence[bytes | None]]] = []
    needed = asking.needed[operation]
    if change.old is not None and needed(change.old):
        change.old = _judged(asking, change.old, asked)
    if change.new is not None and needed(change.new):
        change.new = _judged(asking, change.new, asked)
    return asked


def judge_rows(evaluator: Evaluator, asking: Asking, rows: Sequence[Row]) -> Sequence[Row]:
    """Ask about copied rows, wait for the answers and return the judged rows.

    Raises:
        TransientError: the connection was lost.
    """
    needed = asking.needed[Operation.INSERT]
    asked: list[tuple[JudgedRow, Sequence[bytes | None]]] = []
    judged = [_judged(asking, row, asked) if needed(row) else row for row in rows]
    for first in range(0, len(asked), BATCH_ROWS):
        part = asked[first : first + BATCH_ROWS]
        evaluator.ask(asking.question, [values for _, values in part])
        while (answer := evaluator.collect()) is None:
            wait_readable([evaluator.fileno()], _WAIT_S)
        attach([row for row, _ in part], answer)
    return judged


def _judged(
    asking: Asking, row: Row, asked: list[tuple[JudgedRow, Sequence[bytes | None]]]
) -> JudgedRow:
    """Return the row to be judged, and append it with the values for the server to `asked`."""
    judged = JudgedRow(row)
    values = [None if index is None else row[index] for index in asking.indexes]
    if UNCHANGED in values:
        width = len(asking.question.filters)
        judged.flags = b"%c" % RAISED * width
        judged.errors = dict.fromkeys(range(width), unsent())
    else:
        asked.append((judged, cast("Sequence[bytes | None]", values)))
    return judged


def attach(rows: Sequence[JudgedRow], answer: Answer) -> None:
    """Attach the server's answers to the rows."""
    width = len(answer.flags) // len(rows)
    for number, row in enumerate(rows):
        row.flags = answer.flags[number * width : (number + 1) * width]
    for (number, place), error in answer.errors.items():
        row = rows[number]
        row.errors = {**getattr(row, "errors", {}), place: error}


def _announces(frame: bytes) -> bool:
    tag = frame[XLOGDATA_HEADER]
    return tag == _RELATION or (
        tag == _MESSAGE and _DDL_PREFIXES in frame[XLOGDATA_HEADER : XLOGDATA_HEADER + 64]
    )
