"""Run the job: a streaming query per subscription, until it is stopped or complete.

A micro-batch is a cut over all topics of a subscription. Its tables are written one after another,
each by one idempotent commit, then the subscription's progress is; Spark commits the batch last. A
crash in between, at any point, repeats the batch, and what was done already is skipped.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_consumer import progress as kept
from spark_consumer.apply import Applied, Applier
from spark_consumer.config import ConsumerSettings
from spark_consumer.decode import Survey, check, read_stream, survey, wire
from spark_consumer.errors import (
    ConsumerError,
    ContractError,
    FatalConsumerError,
    SettingsError,
    TransientConsumerError,
)
from spark_consumer.markers import read_markers
from spark_consumer.names import part, transaction_topic
from spark_consumer.progress import Counted, Progress
from spark_consumer.registry import Registry, Schemas
from spark_consumer.small import INTERPRETED, is_small, tuned
from spark_consumer.tables import SESSION_SETTINGS
from spark_consumer.topics import Topics

__all__ = ["Subscription", "progress", "run"]

_log: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.1
_METRICS_FAULT: Final = 'because the return value of "scala.Option.get()" is null'
_TRANSIENT: Final = (
    "TimeoutException",
    "DisconnectException",
    "Connection refused",
    "UnknownHostException",
    "NotLeaderOrFollower",
)


def progress(settings: ConsumerSettings, spark: SparkSession, subscription: str) -> Progress:
    """Where a subscription stands; `Progress.complete_lsn` is the last complete ``end_lsn``.

    Raises:
        FatalConsumerError: the file that says so cannot be understood.
        TransientConsumerError: the file system fails.
    """
    return kept.load(spark, settings.warehouse, subscription) or Progress()


class Subscription:
    """One subscription's part of the job: what is done with each micro-batch.

    Args:
        settings: of the job.
        spark: any session of the application.
        name: the subscription.
        schemas: writer schemas by id.
        topics: checks topics that are new; None to trust them.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        name: str,
        schemas: Schemas,
        topics: Topics | None,
    ) -> None:
        self.name = name
        self.failure: ConsumerError | None = None
        self._settings = settings
        self._spark = spark
        self._schemas = schemas
        self._topics = topics
        self._applier = Applier(spark, settings.warehouse, name, schemas)
        self._markers = transaction_topic(name)
        found = kept.load(spark, settings.warehouse, name)
        self.has_progress = found is not None
        self.progress = found or Progress()

    def is_complete(self) -> bool:
        """The tables hold everything up to `ConsumerSettings.endpos`."""
        complete = self.progress.complete_lsn
        endpos = self._settings.endpos
        return endpos is not None and complete is not None and complete >= endpos

    def check_topics(self) -> None:
        """Refuse topics that cannot be read rightly; see `Topics.check`."""
        if self._topics is not None:
            self._topics.check_all(self.progress.counted)

    def process(self, records: DataFrame, batch: int) -> None:
        """Apply a micro-batch; the function for foreachBatch.

        Args:
            records: as Spark's Kafka source gives them, with headers.
            batch: its number, for the log.

        Raises:
            ConsumerError: see the subclasses; also kept in `failure`, because what Spark passes on
                is only its text.
        """
        try:
            self._process(records, batch)
        except ConsumerError as error:
            self.failure = error
            raise

    def _process(self, records: DataFrame, batch: int) -> None:
        begun = time.monotonic()
        for key, value in SESSION_SETTINGS.items():
            records.sparkSession.conf.set(key, value)
        cut = wire(records, self._markers).persist()
        try:
            with tuned(records.sparkSession, INTERPRETED):
                surveyed = survey(cut)
            self._check(surveyed)
            small = is_small(surveyed)
            with self._applier.gathered(cut) if small else nullcontext(cut) as whole:
                applied = self._apply(whole, surveyed, small=small)
                self._advance(whole, surveyed, applied)
        finally:
            cut.unpersist()
        _log.info(
            "batch applied: subscription=%s batch=%d records=%d tables=%d seconds=%.1f"
            " end_lsn=%s complete_lsn=%s",
            self.name,
            batch,
            sum(found.records for found in surveyed if found.topic != self._markers),
            len(applied),
            time.monotonic() - begun,
            _lsn(self.progress.end_lsn),
            _lsn(self.progress.complete_lsn),
        )

    def _apply(self, cut: DataFrame, surveyed: list[Survey], *, small: bool) -> list[Applied]:
        data = [found for found in surveyed if found.topic != self._markers]
        done = [self._applier.apply(cut, found, small=small) for found in data]
        return [applied for applied in done if applied is not None]

    def _check(self, surveyed: list[Survey]) -> None:
        for found in surveyed:
            if found.partition != 0:
                raise ContractError(
                    f"topic {found.topic} has a record in partition {found.partition}, and the"
                    " Spark job takes topics of one partition",
                    hint="let the gateway create it with one partition, its default",
                )
        if self._topics is not None:
            self._topics.check([found.topic for found in surveyed], self.progress.counted)
        check(surveyed, self._schemas)

    def _advance(self, cut: DataFrame, surveyed: list[Survey], applied: list[Applied]) -> None:
        counted: dict[tuple[str, int], Counted] = {}
        marked = None
        for found in surveyed:
            place = (found.topic, found.partition)
            if found.topic == self._markers:
                schemas = {
                    piece.value_id: json.dumps(self._schemas.schema(piece.value_id))
                    for piece in found.pieces
                }
                marked = read_markers(cut, found, schemas, self.progress.marker_offset)
            before = self.progress.counted.get(place, Counted(-1, 0))
            if found.last > before.offset:
                counted[place] = Counted(
                    found.last, before.records + _records_after(cut, found, before.offset)
                )
        tables = [(done.table, done.version) for done in applied]
        after = kept.advance(self.progress, counted, marked, tables)
        if after != self.progress:
            kept.store(self._spark, self._settings.warehouse, self.name, after)
            self.progress = after


def _records_after(cut: DataFrame, found: Survey, offset: int) -> int:
    if found.first > offset:
        return found.records
    mine = (F.col("topic") == found.topic) & (F.col("offset") > offset)
    left = cut.where(mine & F.col("value_id").isNotNull())
    return left.count()


def run(
    settings: ConsumerSettings, spark: SparkSession, *, stopping: threading.Event | None = None
) -> int:
    """Rebuild the tables of all subscriptions until stopped, or complete up to `endpos`.

    Args:
        settings: of the job.
        spark: a session with Delta and the Kafka connector; see `spark_consumer.session`.
        stopping: set it to stop. None: SIGTERM and SIGINT stop, for which this has to be the main
            thread.

    Returns:
        The exit code, 0.

    Raises:
        FatalConsumerError: a person must act.
        TransientConsumerError: the broker, the registry or the file system does not answer.
    """
    if not settings.subscriptions:
        raise SettingsError("there is no subscription to consume")
    if stopping is not None:
        return _run(settings, spark, stopping)
    with _signals() as event:
        return _run(settings, spark, event)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    event = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(settings: ConsumerSettings, spark: SparkSession, stopping: threading.Event) -> int:
    schemas = Registry(settings.registry_url, settings.registry)
    subscriptions = [
        Subscription(settings, spark, name, schemas, Topics(settings, name))
        for name in settings.subscriptions
    ]
    running: dict[str, StreamingQuery] = {}
    try:
        for subscription in subscriptions:
            if subscription.is_complete():
                _log.info("complete already: subscription=%s", subscription.name)
                continue
            subscription.check_topics()
            _check_checkpoint(settings, spark, subscription)
            running[subscription.name] = _start(settings, spark, subscription)
        by_name = {subscription.name: subscription for subscription in subscriptions}
        while running and not stopping.wait(_POLL_S):
            for name, query in list(running.items()):
                subscription = by_name[name]
                if not subscription.is_complete() and not query.isActive:
                    if not _fell_over_its_metrics(subscription, query):
                        raise _failure(subscription, query)
                    _log.info("going on after a batch that was resumed: subscription=%s", name)
                    running[name] = _start(settings, spark, subscription)
                elif subscription.is_complete():
                    _stop([running.pop(name)], settings.shutdown_timeout_s)
                    _log.info(
                        "complete: subscription=%s end_lsn=%s",
                        name,
                        _lsn(subscription.progress.complete_lsn),
                    )
    finally:
        _stop(list(running.values()), settings.shutdown_timeout_s)
    return 0


def _check_checkpoint(
    settings: ConsumerSettings, spark: SparkSession, subscription: Subscription
) -> None:
    """A checkpoint that goes on in the middle of topics needs the counts of what came before."""
    jvm: Any = spark._jvm
    folder = jvm.org.apache.hadoop.fs.Path(f"{_checkpoint(settings, subscription.name)}/commits")
    files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
    if not subscription.has_progress and files.exists(folder) and files.listStatus(folder):
        raise FatalConsumerError(
            f"subscription {subscription.name}: the checkpoint goes on, but the progress in the"
            " warehouse is gone",
            hint="remove the subscription's checkpoint folder: the topics are read again, and"
            " tables that are there skip what they have",
        )


def _checkpoint(settings: ConsumerSettings, subscription: str) -> str:
    return f"{settings.checkpoint.rstrip('/')}/{part(subscription)}"


def _start(
    settings: ConsumerSettings, spark: SparkSession, subscription: Subscription
) -> StreamingQuery:
    interval = settings.trigger_interval_s
    if settings.endpos is not None:
        interval = min(interval, 0.5)
    # Spark waits for a batch to end when its query is stopped, without a bound by default.
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{settings.shutdown_timeout_s:g}s")
    _log.info("reading: subscription=%s", subscription.name)
    return (
        read_stream(spark, settings, subscription.name)
        .writeStream.queryName(f"pgsluice {subscription.name}")
        .option("checkpointLocation", _checkpoint(settings, subscription.name))
        .trigger(processingTime=f"{interval:g} seconds")
        .foreachBatch(subscription.process)
        .start()
    )


def _fell_over_its_metrics(subscription: Subscription, query: StreamingQuery) -> bool:
    """Whether Spark ended the query over a number that it had not yet asked Kafka for.

    A query that resumes a planned batch has not looked for the newest offsets, and Spark 4.1.1 then
    fails to report how far it is behind, after the batch has been committed: SPARK-55271, repaired
    in later versions. Started again, it goes on with the next batch.
    """
    error = query.exception()
    return subscription.failure is None and error is not None and _METRICS_FAULT in str(error)


def _failure(subscription: Subscription, query: StreamingQuery) -> ConsumerError:
    if subscription.failure is not None:
        return subscription.failure
    error = query.exception()
    text = "the query ended without an error" if error is None else str(error)
    first = next((line for line in text.splitlines() if line.strip()), text)
    if any(word in text for word in _TRANSIENT):
        return TransientConsumerError(f"subscription {subscription.name}: {first}")
    return FatalConsumerError(f"subscription {subscription.name}: {first}")


def _stop(queries: list[StreamingQuery], timeout_s: float) -> None:
    """Let running batches finish within half of the time; abandon them in the other half."""
    deadline = time.monotonic() + timeout_s / 2
    pause = threading.Event()
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            pause.wait(_POLL_S)
    for query in queries:
        try:
            query.stop()
        except PySparkException as error:
            # The batch goes on without us; whatever it still commits is what it would have been.
            _log.warning("a batch was abandoned: %s", type(error).__name__)


def _lsn(lsn: int | None) -> str:
    return "none" if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
