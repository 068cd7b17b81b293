"""Run the job: a streaming query per subscription, until it is stopped or complete.

The stream is the subscription's marker topic. A micro-batch says how far the markers go; it is
applied in cuts, each up to a PROGRESS marker, so at the end of source transactions over all tables
(`spark_consumer.rebuild`). What a table has is in the table, and how far all have come is in the
newest manifest, so Spark's checkpoint is made anew at each start.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_consumer.config import ConsumerSettings, source_options
from spark_consumer.errors import (
    COPY_AGAIN,
    ConsumerError,
    FatalConsumerError,
    SettingsError,
    TransientConsumerError,
)
from spark_consumer.failures import StoppedError, as_error, cause, every_table, may_pass
from spark_consumer.files import Folder
from spark_consumer.listener import listening, query_name
from spark_consumer.manifests import Manifest
from spark_consumer.markers import Claim, Copy, Marker, cut_markers, read_markers
from spark_consumer.metrics import Pulse, serve
from spark_consumer.names import lsn_text, part, transaction_topic
from spark_consumer.rebuild import Rebuild
from spark_consumer.registry import Registry, Schemas
from spark_consumer.session import check_session
from spark_consumer.small import INTERPRETED, tuned
from spark_consumer.topics import Topics, TopicStates
from spark_consumer.witness import Refused, Witness, told

__all__ = ["Subscription", "run"]

_log: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.1
_SAY_S: Final = 30.0
_MARKERS: Final = 100_000
"""Markers in a micro-batch at most; a cut's size is bounded by its records."""
_RESTARTS: Final = 3
"""Times that a query whose source has failed is started again before the job gives up."""


class Subscription:
    """One subscription's part of the job: what is done with each micro-batch.

    Args:
        settings: of the job.
        spark: any session of the application.
        name: the subscription.
        schemas: writer schemas by id.
        topics: describes topics.

    Attributes:
        failure: Why the last micro-batch failed; what Spark passes on is only its text.
        stopping: Set to let the running micro-batch end after the table that is being written.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        name: str,
        schemas: Schemas,
        topics: TopicStates,
    ) -> None:
        self.name = name
        self.failure: ConsumerError | None = None
        self.stopping = threading.Event()
        self.rebuild = Rebuild(settings, spark, name, schemas, topics, self.stopping)
        self._settings = settings
        self._spark = spark
        self._schemas = schemas
        self._topics = topics
        self._topic = transaction_topic(name)
        # Markers of a Kafka transaction whose PROGRESS has not been read yet.
        self._waiting: list[Marker | Copy] = []
        self._witness = Witness(name, settings.topics, None)
        self._begun_at = -1
        self._restarts = 0

    @property
    def manifest(self) -> Manifest:
        """Where it stands."""
        return self.rebuild.manifest

    def is_complete(self) -> bool:
        """The tables hold everything up to `ConsumerSettings.endpos`."""
        endpos = self._settings.endpos
        complete = self.manifest.complete_lsn
        return endpos is not None and complete is not None and complete >= endpos

    def is_stuck(self) -> bool:
        """All up to `ConsumerSettings.endpos` has been read, and some table is in trouble."""
        endpos = self._settings.endpos
        manifest = self.manifest
        return (
            endpos is not None
            and manifest.marker >= 0
            and manifest.end_lsn >= endpos
            and manifest.in_trouble
        )

    def is_there(self) -> bool:
        """The marker topic exists; the gateway makes it with the first subscription."""
        return bool(self._topics.look([self._topic]))

    def start(self) -> StreamingQuery:
        """Look after the tables, then start the query.

        Raises:
            ConsumerError: see the subclasses.
        """
        state = self._topics.look([self._topic])[self._topic]
        self.rebuild.open(state.id)
        begin = max(self.manifest.marker + 1, state.earliest[0])
        self._waiting = []
        owner = self.manifest.owner
        self._witness = Witness(self.name, self._settings.topics, owner, self.manifest.end_lsn)
        self._restarts = self._restarts + 1 if begin == self._begun_at else 0
        self._begun_at = begin
        interval = self._settings.trigger_interval_s
        if self._settings.endpos is not None:
            interval = min(interval, 0.5)
        reader = (
            self._spark.readStream.format("kafka")
            .option("subscribe", self._topic)
            .option("startingOffsets", json.dumps({self._topic: {"0": begin}}))
            .option("failOnDataLoss", "false")
            .option("maxOffsetsPerTrigger", _MARKERS)
            .options(**source_options(self._settings))
        )
        # Spark waits for a batch to end when its query is stopped, without a bound by default.
        timeout = f"{max(1, math.ceil(self._settings.shutdown_timeout_s * 500))}ms"
        self._spark.conf.set("spark.sql.streaming.stopTimeout", timeout)
        folder = f"{self._settings.checkpoint.rstrip('/')}/{part(self.name)}"
        Folder(self._spark, folder).remove_all()
        _log.info("reading: subscription=%s from marker %d", self.name, begin)
        writer = (
            reader.load()
            .writeStream.queryName(query_name(self.name))
            .option("checkpointLocation", folder)
            .foreachBatch(self.process)
        )
        if self._settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval:g} seconds").start()

    def may_restart(self) -> bool:
        """Whether a query that ended can be tried again; not often without any progress."""
        return self.failure is None and self._restarts < _RESTARTS

    def process(self, records: DataFrame, batch: int) -> None:
        """Apply a micro-batch of markers; the function for foreachBatch.

        Args:
            records: as Spark's Kafka source gives them.
            batch: its number.

        Raises:
            ConsumerError: see the subclasses; also kept in `failure`.
        """
        try:
            self._process(records)
        except StoppedError:
            # Spark takes the batch for done, and it is not asked again: see `start`.
            return
        except Exception as error:
            if self.stopping.is_set() and not isinstance(error, ConsumerError):
                _log.warning("batch abandoned: subscription=%s: %s", self.name, cause(error))
                return
            known = every_table(error)
            self.failure = known or as_error(f"subscription {self.name}, its markers", error)
            if self.failure is error:
                raise
            raise self.failure from error

    def _process(self, records: DataFrame) -> None:
        with tuned(records.sparkSession, INTERPRETED):
            read = read_markers(records, self._schemas)
        self._waiting += self._believed(read)
        for cut in cut_markers(self._waiting, self._settings.max_batch_records):
            if self.stopping.is_set():
                raise StoppedError("stopped between two cuts")
            self.rebuild.figures.waiting_since = cut.begun()
            self.rebuild.take(cut)
        self.rebuild.figures.waiting_since = None
        self._waiting = [one for one in self._waiting if one.offset > self.manifest.marker]

    def _believed(self, read: Iterable[Marker | Copy | Claim]) -> Iterator[Marker | Copy]:
        for one in self._witness.judge(read):
            if not isinstance(one, Refused):
                yield one
                continue
            self.rebuild.figures.refused += 1
            _log.warning(
                "marker passed over: subscription=%s offset=%d: %s",
                self.name,
                one.offset,
                one.reason,
            )
        for withdrawn in self._witness.withdrawn:
            _log.warning("%s", told(self.name, withdrawn))
        self._witness.withdrawn.clear()


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
    check_session(spark)
    if stopping is not None:
        return _run(settings, spark, stopping)
    with _signals() as event:
        return _run(settings, spark, event)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    event = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            os._exit(128 + number)  # a second one ends the process at once
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(settings: ConsumerSettings, spark: SparkSession, stopping: threading.Event) -> int:
    with closing(Registry(settings.registry_url, settings.registry)) as schemas:
        return _with_registry(settings, spark, schemas, stopping)


def _with_registry(
    settings: ConsumerSettings, spark: SparkSession, schemas: Schemas, stopping: threading.Event
) -> int:
    topics = Topics(settings)
    waiting = [
        Subscription(settings, spark, name, schemas, topics) for name in settings.subscriptions
    ]
    figures = {subscription.name: subscription.rebuild.figures for subscription in waiting}
    pulse = Pulse()
    with listening(spark, figures), serve(settings.metrics_listen, figures, pulse):
        return _rebuild(settings, waiting, stopping, pulse)


def _rebuild(
    settings: ConsumerSettings,
    waiting: list[Subscription],
    stopping: threading.Event,
    pulse: Pulse,
) -> int:
    running: dict[Subscription, StreamingQuery] = {}
    try:
        with _ends_with_spark(stopping):
            _watch(settings, waiting, running, stopping, pulse)
    finally:
        _stop(running, settings.shutdown_timeout_s)
    if stopping.is_set():
        _log.info("stopped")
    return 0


@contextmanager
def _ends_with_spark(stopping: threading.Event) -> Iterator[None]:
    """Let a JVM that is gone be a stop, when a stop was asked for, or else what may pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ConsumerError) or (every := every_table(error)) is None:
            raise
        if not stopping.is_set():
            raise every from error
        _log.warning("Spark has ended before the job: %s", cause(error))


def _watch(
    settings: ConsumerSettings,
    waiting: list[Subscription],
    running: dict[Subscription, StreamingQuery],
    stopping: threading.Event,
    pulse: Pulse,
) -> None:
    said = time.monotonic()
    while (running or waiting) and not stopping.is_set():
        pulse.beat()
        for subscription in list(waiting):
            if subscription.is_complete():
                _log.info("complete already: subscription=%s", subscription.name)
                waiting.remove(subscription)
            elif subscription.is_there():
                running[subscription] = subscription.start()
                waiting.remove(subscription)
            elif settings.available_now:
                _log.info("nothing is there: subscription=%s", subscription.name)
                waiting.remove(subscription)
        for subscription, query in list(running.items()):
            if not _look_after(settings, subscription, query, running):
                waiting.append(subscription)
        if time.monotonic() - said > _SAY_S:
            said = time.monotonic()
            _say_what_is_missing(settings, [*waiting, *running])
        stopping.wait(_POLL_S)


def _look_after(
    settings: ConsumerSettings,
    subscription: Subscription,
    query: StreamingQuery,
    running: dict[Subscription, StreamingQuery],
) -> bool:
    """Look at a subscription's query; False when it has ended and is to be started again."""
    if subscription.is_complete():
        _stop({subscription: running.pop(subscription)}, settings.shutdown_timeout_s)
        lsn = lsn_text(subscription.manifest.complete_lsn)
        _log.info("complete: subscription=%s end_lsn=%s", subscription.name, lsn)
    elif not query.isActive:
        if not settings.available_now or subscription.failure or query.exception() is not None:
            failure = _failure(subscription, query)
            if not isinstance(failure, TransientConsumerError) or not subscription.may_restart():
                raise failure
            _log.warning("starting the query again: %s", failure.message)
            del running[subscription]
            return False
        del running[subscription]
        _log.info(
            "all applied that was there: subscription=%s end_lsn=%s",
            subscription.name,
            lsn_text(subscription.manifest.end_lsn),
        )
        if subscription.manifest.in_trouble:
            raise _left_aside(subscription)
    elif subscription.is_stuck():
        raise _left_aside(subscription)
    return True


def _left_aside(subscription: Subscription) -> FatalConsumerError:
    manifest = subscription.manifest
    return FatalConsumerError(
        f"subscription {subscription.name}: everything up to {lsn_text(manifest.end_lsn)} is read,"
        f" but {'; '.join(manifest.missing())}",
        hint="; ".join(
            sorted(
                {aside.hint or "" for aside in manifest.aside.values()}
                | {f"remove the cause at the source, or {COPY_AGAIN}" for _ in manifest.held}
            )
        ),
    )


def _say_what_is_missing(settings: ConsumerSettings, subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        manifest = subscription.manifest
        if settings.endpos is not None:
            missing = "; ".join(manifest.missing()) or "markers up to there"
            _log.info(
                "waiting: subscription=%s is at %s of %s, for %s",
                subscription.name,
                lsn_text(manifest.end_lsn),
                lsn_text(settings.endpos),
                missing,
            )


def _failure(subscription: Subscription, query: StreamingQuery) -> ConsumerError:
    if subscription.failure is not None:
        return subscription.failure
    error = query.exception()
    text = "the query ended without an error" if error is None else str(error)
    first = next((line for line in text.splitlines() if line.strip()), text)
    java = query._jsq.exception()
    if error is not None and java.isDefined() and may_pass(java.get()):
        return TransientConsumerError(f"subscription {subscription.name}: {first}")
    return FatalConsumerError(f"subscription {subscription.name}: {first}")


def _stop(running: dict[Subscription, StreamingQuery], timeout_s: float) -> None:
    """Let running cuts finish within half of the time; abandon them in the other half."""
    deadline = time.monotonic() + timeout_s / 2
    pause = threading.Event()
    for subscription in running:
        subscription.stopping.set()
    for query in running.values():
        with suppress(PySparkException, Py4JError):
            while (
                query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline
            ):
                pause.wait(_POLL_S)
    for subscription, query in running.items():
        try:
            query.stop()
        except (PySparkException, Py4JError) as error:
            # What it still commits is what it would have been, and what it does not is read again.
            _log.warning(
                "batch abandoned, the next start goes on before it: subscription=%s: %s",
                subscription.name,
                cause(error),
            )
