"""Parallel application of shares.

Small shares of small tables are read together and applied by the driver, see
`spark_consumer.apply.driver`; of the others small ones are read together by Spark, a large one
alone.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_consumer.apply.applier import Applier
from spark_consumer.apply.driver.reader import SmallReader
from spark_consumer.apply.driver.records import HeldRecords
from spark_consumer.apply.driver.writer import NotSmallError
from spark_consumer.apply.frames.large import Learnt
from spark_consumer.display import logger
from spark_consumer.errors import ConsumerError
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.job.planner import Task, offsets, read_shares
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.batch_profile import Survey, survey
from spark_consumer.kafka.decode import wire
from spark_consumer.kafka.registry import Schemas
from spark_consumer.metrics import Figures
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import StoppedError, cause, every_table
from spark_consumer.spark.tuning import INTERPRETED, gather, is_small, tuned
from spark_consumer.states.manifests import Hold

__all__ = ["Workers", "groups"]

_log: Final = logger(__name__)
_TOGETHER: Final = 4
"""Number of small tables that are read together even if other workers are idle."""


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
        with ThreadPoolExecutor(self._settings.parallel_tables) as pool:
            small = [task for task in tasks if is_small(task.share.records())]
            left = [task for task in tasks if not is_small(task.share.records())]
            for group in groups(small):
                with self._figures.phase("read"):
                    records = self._read(group)
                unread = [task for task in group if task.share.topic not in records]
                if unread:
                    _log.info("records are left to Spark to read: tables=%d", len(unread))
                left += unread
                pairs = [
                    (task, records[task.share.topic])
                    for task in group
                    if task.share.topic in records
                ]
                with self._figures.phase("apply"):
                    outcomes = list(pool.map(lambda pair: self._small(*pair), pairs))
                for (task, _), outcome in zip(pairs, outcomes, strict=True):
                    if isinstance(outcome, Found):
                        done[task.name] = outcome
                    elif isinstance(outcome, NotSmallError):
                        # Its text may have a value of a row.
                        kind = type(outcome.__cause__).__name__
                        _log.debug("left to Spark: table=%s cause=%s", task.name, kind)
                        left.append(_rest(task, outcome.reached))
                    else:
                        done[task.name] = self._tables.failed(task.name, outcome, last=last)
            shared = list(groups(left, self._settings.parallel_tables))
            with self._figures.phase("apply"):
                for applied in pool.map(lambda group: self._run(group, last=last), shared):
                    done |= applied
        return done

    def _read(self, tasks: Sequence[Task]) -> dict[str, HeldRecords]:
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

    def _small(self, task: Task, records: HeldRecords) -> Found | Exception:
        """Apply a share without Spark; NotSmallError if that is not possible."""

        def apply() -> Found:
            applier = self._appliers.get()
            try:
                table = self._tables.table(applier.spark, task.name)
                return applier.apply_held(table, task.found, task.share, records)
            finally:
                self._appliers.put(applier)

        return self._guarded(apply)

    def _run(self, tasks: Sequence[Task], *, last: bool) -> dict[str, Found | Hold]:
        """Apply a group of shares with one read; one by one if that fails."""
        applier = self._appliers.get()
        try:
            outcomes = self._together(applier, tasks)
        except Exception as error:  # whatever it is, it is one of these tables'
            self._unless_every(error)
            outcomes = {task.name: error for task in tasks}
        finally:
            self._appliers.put(applier)
        done: dict[str, Found | Hold] = {}
        for task in tasks:
            outcome = outcomes[task.name]
            if isinstance(outcome, Found):
                done[task.name] = outcome
            elif len(tasks) > 1:
                done |= self._run([task], last=last)
            else:
                done[task.name] = self._tables.failed(task.name, outcome, last=last)
        return done

    def _together(self, applier: Applier, tasks: Sequence[Task]) -> dict[str, Found | Exception]:
        records = sum(task.share.records() for task in tasks)
        frame = wire(read_shares(applier.spark, self._settings, [task.share for task in tasks]))
        if not is_small(records):
            (task,) = tasks
            return {
                task.name: self._guarded(
                    lambda: applier.apply_large(
                        self._tables.table(applier.spark, task.name), task.found, task.share, frame
                    )
                )
            }
        frame = frame.persist()
        try:
            with tuned(applier.spark, INTERPRETED):
                surveyed = survey(frame)
            if not is_small(records, sum(held.bytes for held in surveyed.values())):
                return {
                    task.name: self._one(
                        applier, task, _of(frame, task), surveyed.get(task.share.topic), small=False
                    )
                    for task in tasks
                }
            done: dict[str, Found | Exception] = {}
            with tuned(applier.spark):
                whole = gather(frame, applier.spark)
                for task in tasks:
                    held = surveyed.get(task.share.topic)
                    done[task.name] = self._one(applier, task, _of(whole, task), held, small=True)
            return done
        finally:
            frame.unpersist()

    def _one(
        self,
        applier: Applier,
        task: Task,
        frame: DataFrame,
        held: Survey | None,
        *,
        small: bool,
    ) -> Found | Exception:
        def apply() -> Found:
            table = self._tables.table(applier.spark, task.name)
            return applier.apply_frame(table, task.found, task.share, frame, held, small=small)

        return self._guarded(apply)

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


def _of(frame: DataFrame, task: Task) -> DataFrame:
    return frame.where(F.col("topic") == task.share.topic)


def _rest(task: Task, reached: Found | None) -> Task:
    """Return what is left of a task when its table has reached a state."""
    if reached is None:
        return task
    share = replace(task.share, start=reached.commit.position, begins=False)
    return replace(task, found=reached, share=share)


def groups(tasks: Sequence[Task], workers: int = 1) -> Iterator[list[Task]]:
    """Yield groups of shares that are read together: small ones, while the sum is small.

    A group leaves shares for the other workers, which would be idle otherwise: one more read costs
    less than writing a few tables.
    """
    most = max(_TOGETHER, math.ceil(len(tasks) / workers))
    group: list[Task] = []
    for task in sorted(tasks, key=lambda task: task.share.records()):
        records = sum(one.share.records() for one in group) + task.share.records()
        if group and (len(group) == most or not is_small(records)):
            yield group
            group = []
        group.append(task)
    if group:
        yield group
