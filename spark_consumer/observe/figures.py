"""Figures of a subscription, as the job counts them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from spark_consumer.observe.cut_times import CutTimes, OnCut, Step
from spark_consumer.observe.progress import Progress

__all__ = ["PHASES", "Figures", "age"]

PHASES: Final = ("stream", "plan", "read", "apply", "history", "manifest", "maintenance")


@dataclass(slots=True)
class Figures:
    """Figures of one subscription in the job.

    Attributes:
        end_lsn: LSN until which all tables that are not held are complete.
        commit_time: The source's commit time of the last transaction until `end_lsn` of which one
            is known, microseconds since 1970; None if there is none.
        records: Number of records applied since the start.
        cuts: Number of cuts reached since the start.
        skipped: Number of keys whose UPDATE or DELETE matched no row, summed over batches.
        tables_held: Number of tables that the job holds now.
        waiting_since: Commit time of the oldest marker that has been read and is not applied,
            microseconds since 1970; None if there is none.
        unread_markers: Number of unread markers in the topic, by the last progress report.
        held: Reason for which the subscription is not read; None while it is.
        refused: Number of markers skipped since the start; the log has the reasons.
        tables: By table, commit time of the oldest change that it lacks, microseconds since 1970;
            None if it lacks none.
        seconds: Seconds spent since the start, by phase: stream (Spark's own, around each
            micro-batch), plan, read (records, by the driver), apply, history, manifest,
            maintenance.
        seen_at: Time of the last activity of the query or of a step of the job, in seconds of the
            monotonic clock; None before the first.
        progress: Progress through the cuts that have been read.
        on_cut: Receiver of the times of each cut; None where nobody wants them.
    """

    end_lsn: int = 0
    commit_time: int | None = None
    records: int = 0
    cuts: int = 0
    skipped: int = 0
    tables_held: int = 0
    waiting_since: int | None = None
    unread_markers: int = 0
    held: str | None = None
    refused: int = 0
    tables: Mapping[str, int | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    seen_at: float | None = None
    progress: Progress = field(default_factory=Progress)
    on_cut: OnCut | None = None
    _steps: list[Step] | None = None

    def see(self) -> None:
        """Record activity of the query, or of a step of the job."""
        self.seen_at = time.monotonic()

    @property
    def silence(self) -> float | None:
        """Seconds since the last activity; None before the first one."""
        return None if self.seen_at is None else time.monotonic() - self.seen_at

    @property
    def lag(self) -> float:
        """Seconds since the source committed the oldest unapplied marker; 0 if there is none.

        While the subscription is held, unread markers are unknown: since the last applied commit.
        """
        since = self.waiting_since
        if since is None and self.held is not None:
            since = self.commit_time
        return age(since)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        self.see()
        begun = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self.spend(name, ended - begun)
            if self._steps is not None and name != "apply":  # its steps are those of the tables
                self._steps.append(Step(name, "", begun, ended))

    @contextmanager
    def table(self, name: str) -> Iterator[None]:
        """Note the times in which a table is written; any thread may do so."""
        begun = time.monotonic()
        try:
            with self.progress.table(name):
                yield
        finally:
            if (steps := self._steps) is not None:
                steps.append(Step("apply", name, begun, time.monotonic()))

    @contextmanager
    def cut(self, end_lsn: int, records: int) -> Iterator[None]:
        """Report the times of a cut to `on_cut`, failed or not."""
        if self.on_cut is None:
            yield
            return
        steps: list[Step] = []
        self._steps = steps
        begun, error = time.monotonic(), ""
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._steps = None
            self.on_cut(CutTimes(end_lsn, records, begun, time.monotonic(), steps, error))

    def spend(self, name: str, seconds: float) -> None:
        """Add time to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.see()


def age(since: int | None) -> float:
    """Return the seconds since a time in microseconds since 1970; 0 for none."""
    return 0.0 if since is None else max(0.0, time.time() - since / 1_000_000)
