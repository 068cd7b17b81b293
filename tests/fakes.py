"""The pipeline's collaborators without their edges: real implementations of its protocols.

They keep everything in memory and move only when a test says so; the clock stands still between
`ManualClock.advance` calls.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gateway.errors import TransientError
from gateway.lsn import Lsn
from gateway.records import Batch, Record
from gateway.transactions import Prepared, RolledBack, StandaloneMessage, Transaction


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
    """Gives out scripted frames; always readable, so that `select` never waits."""

    def __init__(self, turns: Sequence[Sequence[bytes]]) -> None:
        self._turns = deque(turns)
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
            self.committed.append(Batch(self._open, batch.watermark, batch.totals))
            self._open = []
        return batch

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class FakeRouter:
    """Makes one record per frame, keyed by nothing, so that tests can count and order them."""

    def __init__(self, subscriptions: Sequence[str] = ("s",)) -> None:
        self.ended: dict[str, Lsn] = {}
        self.learnt: list[int] = []
        self._subscriptions = subscriptions

    def learn(self, event: Transaction | Prepared) -> None:
        self.learnt.append(event.xid)

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        for frames in transaction.frames():
            yield [_record(b"%d" % transaction.xid) for _ in frames]
        for name in self._subscriptions:
            self.ended[name] = transaction.end_lsn
        yield [_record(b"END %d" % transaction.xid)]

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        return [_record(message.message.content)]

    def mark(self, event: Prepared | RolledBack) -> list[Record]:
        kind = b"PREPARE" if isinstance(event, Prepared) else b"ROLLBACK"
        return [_record(kind + b" " + event.gid.encode())]

    def progress(self, subscriptions: Sequence[str], end_lsn: Lsn) -> list[Record]:
        return [_record(b"PROGRESS %s %d" % (name.encode(), end_lsn)) for name in subscriptions]

    def take_lost_values(self) -> Mapping[str, int]:
        return {}

    def take_quarantined(self) -> Mapping[str, int]:
        return {}

    def take_totals(self) -> Mapping[str, tuple[int, ...]]:
        return {}


def _record(value: bytes) -> Record:
    return ("topic", 0, None, value, [])
