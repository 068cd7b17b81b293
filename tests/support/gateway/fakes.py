"""The pipeline's collaborators without their edges: real implementations of its protocols.

They keep everything in memory and move only when a test says so; the clock stands still between
`ManualClock.advance` calls.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gateway.copy import Progress
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Cut, Record
from gateway.core.watermark import CopyState, LastCommit
from gateway.pgoutput.frames import read_begin
from gateway.routing.short_transactions import RoutedSeries
from gateway.runtime.ports import Placement
from gateway.transactions import (
    PreparedTransaction,
    RolledBack,
    Series,
    Transaction,
)
from tests.support.gateway.routers import RouterOfTests, record


class ManualClock:
    """Seconds that pass by themselves only a little, so that a loop cannot wait for ever."""

    def __init__(self, step_s: float = 0.001) -> None:
        self.now = 1000.0
        self._step = step_s

    def __call__(self) -> float:
        self.now += self._step
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class FakeSource:
    """Gives out scripted frames; always readable, so that `select` never waits.

    Args:
        replies: Frames that it sends when it is asked for a reply, one set for each request.
    """

    silent_for_s = 0.0

    def __init__(
        self, turns: Sequence[Sequence[bytes]], replies: Sequence[Sequence[bytes]] = ()
    ) -> None:
        self._turns = deque(turns)
        self._replies = deque(replies)
        self.feedback: list[Lsn] = []
        self._reader, self._writer = os.pipe()
        os.write(self._writer, b"x")

    def fileno(self) -> int:
        return self._reader

    def receive(self, limit: int) -> Sequence[bytes]:
        return self._turns.popleft() if self._turns else ()

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        assert write_lsn is None or write_lsn >= flush_lsn
        self.feedback.append(flush_lsn)
        if reply_requested and self._replies:
            self._turns.append(self._replies.popleft())

    def finish(self, timeout_s: float) -> bool:
        self.close()
        return True

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class FakeSink:
    """Commits after `delay` calls of `collect`; `committed` is what readers see."""

    def __init__(self, *, delay: int = 0, fail_at_commit: int | None = None) -> None:
        self._delay = delay
        self._fail_at_commit = fail_at_commit
        self._current: Batch | None = None
        self._open: list[Record] = []
        self._remaining = 0
        self.committed: list[Batch] = []
        self.batches: list[Batch] = []
        self._reader, self._writer = os.pipe()
        os.write(self._writer, b"x")

    def fileno(self) -> int:
        return self._reader

    @property
    def busy(self) -> bool:
        return self._current is not None

    def submit(self, batch: Batch) -> None:
        assert self._current is None
        self.batches.append(batch)
        self._current = batch
        self._remaining = self._delay

    def collect(self) -> Batch | None:
        if self._current is None:
            return None
        if self._remaining > 0:
            self._remaining -= 1
            return None
        batch, self._current = self._current, None
        self._open += batch.records
        if batch.watermark is not None:
            if len(self.committed) == self._fail_at_commit:
                raise TransientError("the broker is gone")
            self.committed.append(
                Batch([*self._open, *_progress(batch.cut)], batch.watermark, batch.cut)
            )
            self._open = []
        return batch

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class FakeRouter(RouterOfTests):
    """Makes one record per frame, keyed by nothing, so that tests can count and order them.

    Of short transactions it takes `at_once` in one go, up to one in `refused`.

    Attributes:
        in_series: How many it took so, in each go.
        topics: Over how many the transactions are shared out, by xid.
    """

    at_once = 2

    def __init__(self, subscriptions: Sequence[str] = ("s",)) -> None:
        super().__init__()
        self.waits: dict[int, int] = {}  # by xid: how often there is no answer about its rows yet
        self.foreseen: list[int] = []
        self.always_readable: int | None = None
        self.learnt: list[int] = []
        self.refused: frozenset[int] = frozenset()  # by xid
        self.in_series: list[int] = []
        self.topics = 1
        self._subscriptions = subscriptions

    def learn(self, event: Transaction | PreparedTransaction) -> None:
        self.learnt.append(event.xid)

    def foresee(self, item: Transaction | PreparedTransaction) -> None:
        self.foreseen.append(item.xid)

    def route_series(self, series: Series, room: int) -> RoutedSeries | None:
        records: list[Record] = []
        taken: list[Transaction] = []
        while series and len(taken) < self.at_once:
            begun = read_begin(series.frames[series.place])
            assert begun is not None
            if begun[2] in self.refused:
                break
            taken.append(series.pop())
        if not taken:
            return None
        for transaction in taken:
            for made in self.route(transaction):
                records += made
        self.in_series.append(len(taken))
        last = LastCommit(taken[-1].commit_lsn, taken[-1].xid, taken[-1].commit_time)
        return RoutedSeries(records, len(taken), taken[-1].end_lsn, last)

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        for _ in range(self.waits.get(transaction.xid, 0)):
            self.awaits = self.always_readable
            yield []
        self.awaits = None
        topic = f"topic{transaction.xid % self.topics}"
        for frames in transaction.frames():
            yield [record(b"%d" % transaction.xid, topic) for _ in frames]
        for name in self._subscriptions:
            self.ended[name] = transaction.end_lsn
        yield [record(b"END %d" % transaction.xid, topic)]

    def mark(self, event: PreparedTransaction | RolledBack) -> list[Record]:
        kind = b"PREPARE" if isinstance(event, PreparedTransaction) else b"ROLLBACK"
        return [record(kind + b" " + event.gid.encode())]


def _progress(cut: Cut | None) -> list[Record]:
    """PROGRESS markers without records of their subscription."""
    if cut is None:
        return []
    return [record(b"PROGRESS %s %d" % (name.encode(), cut.end_lsn)) for name in cut.idle]


class FakeCopier:
    """Chunks with the positions from which on they can be placed.

    Args:
        records: Number of records of each chunk.

    Attributes:
        placed: The position at which each went out.
    """

    def __init__(
        self,
        chunks: Sequence[tuple[int, bytes]],
        *,
        needs_successor: bool = False,
        records: int = 1,
    ) -> None:
        self._chunks = deque(chunks)
        self._count = records
        self.needs_successor = needs_successor
        self.placed: list[Lsn] = []
        self._states: tuple[CopyState, ...] = ()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)

    def fileno(self) -> int:
        return self._reader

    @property
    def unfinished(self) -> bool:
        return bool(self._chunks)

    def awaited(self) -> Lsn | None:
        return Lsn(self._chunks[0][0]) if self._chunks else None

    def place(self, last: Lsn, until: Lsn, room: int) -> Placement | None:
        assert room > 0
        with suppress(BlockingIOError):
            os.read(self._reader, 4096)
        if not self._chunks or self._chunks[0][0] > until:
            return None
        lsn, value = self._chunks[0]
        self.placed.append(max(last, Lsn(lsn)))
        return Placement(self.placed[-1], self._records(value))

    def _records(self, value: bytes) -> Iterator[list[Record]]:
        yield [record(value)] * self._count
        self._chunks.popleft()
        os.write(self._writer, b"x")  # as when another chunk has been read

    def states(self) -> tuple[CopyState, ...]:
        progress = Progress((b"%d" % len(self.placed),), not self._chunks)
        states = (CopyState("s", "public", "t", "copying", progress=progress),)
        self._states = self._states if self._states == states else states
        return self._states

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
