"""Parallel application of shares.

Small shares of small tables are read together and applied by the driver, see
`spark_consumer.apply.driver`; each of the others by queries of Spark.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.apply.applier import Applier
from spark_consumer.apply.driver.reader import SmallReader
from spark_consumer.apply.driver.records import DriverRecords
from spark_consumer.apply.driver.writer import NotSmallError
from spark_consumer.apply.frames.guessed import Learnt
from spark_consumer.display import logger
from spark_consumer.errors import ConsumerError
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.job.planner import Task, offsets, read_shares
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.decode import wire
from spark_consumer.kafka.registry import Schemas
from spark_consumer.observe.figures import Figures
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import StoppedError, cause, every_table
from spark_consumer.spark.tuning import is_small
from spark_consumer.states.manifests import Hold

__all__ = ["Workers", "groups"]

_log: Final = logger(__name__)


@dataclass(frozen=True, slots=True)
class _ForSpark:
    """A task that is applied by queries of Spark.

    Attributes:
        task: The task, or what is left of it.
        fits_driver: Whether the driver has read its records, so that they are few and small.
    """

    task: Task
    fits_driver: bool = False


class Workers:
    """Pool of threads with a session each.

    Args:
        settings: Settings of the job.
        spark: Any session of the application.
        schemas: Writer schemas by ID.
        tables: Tables of the subscription.
        reader: Reader of small shares.
        stopping: Event after which no further table is begun.
        figures: Figures of the subscription.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        schemas: Schemas,
        tables: SubscriberTables,
        reader: SmallReader,
        stopping: threading.Event,
        figures: Figures,
    ) -> None:
        self._figures = figures
        self._settings = settings
        self._stopping = stopping
        self._tables = tables
        self._appliers: queue.SimpleQueue[Applier] = queue.SimpleQueue()
        learnt = Learnt()
        self._all = [
            Applier(spark.newSession(), schemas, learnt) for _ in range(settings.parallel_tables)
        ]
        for applier in self._all:
            self._appliers.put(applier)
        self._reader = reader

    @property
    def skipped(self) -> int:
        """Number of keys whose update or delete matched no row, since the start."""
        return sum(applier.skipped for applier in self._all)

    def apply(self, tasks: Sequence[Task], *, last: bool) -> dict[str, Found | Hold]:
        """Apply shares.

        Args:
            tasks: Tasks of different tables.
            last: Whether this is the last attempt: then transient failures hold tables, too.

        Raises:
            TransientConsumerError: the batch should be retried; some tables may have it already.
            StoppedError: the job is to stop.
        """
        done: dict[str, Found | Hold] = {}
        small = [task for task in tasks if is_small(task.share.records())]
        left = [_ForSpark(task) for task in tasks if not is_small(task.share.records())]
        with ThreadPoolExecutor(self._settings.parallel_tables) as pool:
            for group in groups(small):
                settled, unfit = self._group_in_driver(pool, group, last=last)
                done |= settled
                left += unfit
            with self._figures.phase("apply"):
                outcomes = list(pool.map(self._in_frames, left))
            for one, outcome in zip(left, outcomes, strict=True):
                done[one.task.name] = self._settled(one.task, outcome, last=last)
        return done

    def _group_in_driver(
        self, pool: ThreadPoolExecutor, group: Sequence[Task], *, last: bool
    ) -> tuple[dict[str, Found | Hold], list[_ForSpark]]:
        """Apply small shares without Spark; return the tables, and what is left to Spark."""
        with self._figures.phase("read"):
            records = self._read(group)
        left = [_ForSpark(task) for task in group if task.share.topic not in records]
        if left:
            _log.info("records are left to Spark to read: tables=%d", len(left))
        pairs = [(task, records[task.share.topic]) for task in group if task.share.topic in records]
        with self._figures.phase("apply"):
            outcomes = list(pool.map(lambda pair: self._in_driver(*pair), pairs))
        done: dict[str, Found | Hold] = {}
        for (task, _), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, NotSmallError):
                # Its text may have a value of a row.
                kind = type(outcome.__cause__).__name__
                _log.debug("left to Spark: table=%s cause=%s", task.name, kind)
                left.append(_ForSpark(_rest(task, outcome.reached), fits_driver=True))
            else:
                done[task.name] = self._settled(task, outcome, last=last)
        return done, left

    def _settled(self, task: Task, outcome: Found | Exception, *, last: bool) -> Found | Hold:
        """Return a table, or its hold if it failed.

        Raises:
            TableTransientError: it may pass, and this is not the last attempt.
        """
        if isinstance(outcome, Found):
            return outcome
        return self._tables.failed(task.name, outcome, last=last)

    def _read(self, tasks: Sequence[Task]) -> dict[str, DriverRecords]:
        """Return the records of small shares by topic, without those that are for Spark to read."""
        try:
            found = self._reader.read(offsets(task.share for task in tasks))
        except Exception as error:  # Spark's reading says what it is
            self._unless_every(error)
            _log.info("records are left to Spark to read: %s", cause(error))
            found = None
        if found is not None:
            return found
        if len(tasks) == 1:
            return {}
        middle = len(tasks) // 2
        return self._read(tasks[:middle]) | self._read(tasks[middle:])

    def _in_driver(self, task: Task, records: DriverRecords) -> Found | Exception:
        """Apply a share without Spark; NotSmallError if that is not possible."""

        def apply() -> Found:
            applier = self._appliers.get()
            try:
                table = self._tables.table(applier.spark, task.name)
                with self._figures.table(task.name):
                    return applier.apply_in_driver(table, task.found, task.share, records)
            finally:
                self._appliers.put(applier)

        return self._counted(task, self._guarded(apply))

    def _in_frames(self, left: _ForSpark) -> Found | Exception:
        """Apply a share by queries of Spark."""
        task, applier = left.task, self._appliers.get()

        def apply() -> Found:
            table = self._tables.table(applier.spark, task.name)
            frame = wire(read_shares(applier.spark, self._settings, [task.share]))
            with self._figures.table(task.name):
                return applier.apply_in_frames(
                    table, task.found, task.share, frame, small=left.fits_driver
                )

        try:
            return self._counted(task, self._guarded(apply))
        finally:
            self._appliers.put(applier)

    def _counted(self, task: Task, outcome: Found | Exception) -> Found | Exception:
        if isinstance(outcome, Found):
            self._figures.progress.applied(task.name, task.share.records())
        return outcome

    def _guarded(self, apply: Callable[[], Found]) -> Found | Exception:
        """Return the outcome for one table; any failure belongs to that table."""
        if self._stopping.is_set():
            raise StoppedError("stopped between two tables")
        try:
            return apply()
        except Exception as error:
            self._unless_every(error)
            return error

    def _unless_every(self, error: Exception) -> None:
        """Raise an error that concerns every table; see `spark_consumer.spark.failures`."""
        if self._stopping.is_set() and not isinstance(error, ConsumerError):
            raise StoppedError("stopped while a table was written") from error
        if (every := every_table(error)) is not None:
            raise every from error


def _rest(task: Task, reached: Found | None) -> Task:
    """Return what is left of a task when its table has reached a state."""
    if reached is None:
        return task
    share = replace(task.share, start=reached.commit.position, begins=False)
    return replace(task, found=reached, share=share)


def groups(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """Yield groups of small shares that are read together, whose sum is small."""
    group: list[Task] = []
    for task in tasks:
        records = sum(one.share.records() for one in group) + task.share.records()
        if group and not is_small(records):
            yield group
            group = []
        group.append(task)
    if group:
        yield group
