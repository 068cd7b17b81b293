"""One pipeline on scripted edges, and the frames that its tests feed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway._speedups.loader import load_compiled
from gateway.core.lsn import Lsn
from gateway.core.watermark import LastCommit
from gateway.observe import Counters
from gateway.pgoutput.messages import Begin, Commit, Insert, LogicalMessage
from gateway.runtime.loop.pipeline import Pipeline
from gateway.runtime.loop.receiver import Receiver
from tests.support.gateway.fakes import FakeRouter, FakeSink, FakeSource, ManualClock
from tests.support.models.pgoutput_encode import xlogdata

__all__ = ["FORMS", "LAST", "START", "Bench", "BenchFactory", "message", "transaction"]

START = Lsn(1000)
LAST = LastCommit(Lsn(990), xid=6, commit_time=0)


def transaction(xid: int, commit_lsn: int, rows: int = 1) -> list[bytes]:
    """Frames of a transaction that ends 10 bytes behind its commit LSN."""
    return [
        xlogdata(Begin(Lsn(commit_lsn), 0, xid), wal_start=commit_lsn - 5),
        *[xlogdata(Insert(1, (b"1",)), wal_start=commit_lsn - 4)] * rows,
        xlogdata(Commit(0, Lsn(commit_lsn), Lsn(commit_lsn + 10), 0), wal_start=commit_lsn),
    ]


def message(lsn: int, content: bytes) -> bytes:
    return xlogdata(LogicalMessage(False, Lsn(lsn), "p", content), wal_start=lsn)


@dataclass
class Bench:
    """One pipeline on fakes, stopped `stop_after` turns after the last frames.

    Or when it has committed up to `stop_at`.
    """

    source: FakeSource
    receiver: Receiver
    sink: FakeSink
    router: FakeRouter
    pipeline: Pipeline
    clock: ManualClock
    counters: Counters

    def values(self) -> list[bytes]:
        return [r[3] or b"" for batch in self.sink.committed for r in batch.records]


BenchFactory = Callable[..., Bench]


FORMS = [False] if isinstance(load_compiled("scanning"), str) else [False, True]
"""Whether short transactions come in series."""
