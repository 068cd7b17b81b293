"""Run the job: a streaming query per subscription, until it is stopped or complete.

The stream is the subscription's marker topic. A micro-batch of markers is applied in batches, each
until a cut, so at the end of source transactions over all tables (`spark_consumer.job.rebuild`).
Each table stores its own position, and the newest manifest that of all tables, so Spark's
checkpoint is recreated at each start.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.topic_names import topic_identifier
from spark_consumer.display import logger
from spark_consumer.errors import (
    COPY_AGAIN,
    AccessError,
    ConsumerError,
    FatalConsumerError,
    SettingsError,
    TransientConsumerError,
)
from spark_consumer.formats.choice import open_formats
from spark_consumer.job.rebuild import BACK_OFF_S, TRIES
from spark_consumer.job.subscription_query import Subscription
from spark_consumer.job.telemetry import telemetry
from spark_consumer.kafka.registry import Registry
from spark_consumer.kafka.topics import Topics
from spark_consumer.names import lsn_text
from spark_consumer.observe.health import Pulse
from spark_consumer.observe.server import serve
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import as_error, cause, every_table
from spark_consumer.spark.query_listener import listening
from spark_consumer.spark.session import check_session

__all__ = ["run"]

_log: Final = logger(__name__)
_POLL_S: Final = 0.1
_REPORT_S: Final = 30.0
_RETRY_S: Final = 60.0
"""Seconds after which a held subscription is retried."""
_IDLE: Final = "Waiting for"
"""Beginning of Spark's status message for a query that has read everything."""


def run(
    settings: ConsumerSettings, spark: SparkSession, *, stopping: threading.Event | None = None
) -> int:
    """Rebuild the tables of all subscriptions until stopped, or complete until `endpos`.

    Args:
        settings: Settings of the job.
        spark: Session with Delta and the Kafka connector; see `spark_consumer.spark.session`.
        stopping: Event that stops the job. None: SIGTERM and SIGINT do, which requires the main
            thread.

    Returns:
        The exit code, 0.

    Raises:
        FatalConsumerError: a person must act.
            Among others, the broker or the registry has refused the user (`AccessError`) as often
            as a batch is attempted.
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
    with ExitStack() as stack:
        registry = Registry(settings.registry_url, settings.registry, settings.json)
        stack.enter_context(closing(registry))
        topics = Topics(settings)
        formats = open_formats(spark, settings, settings.subscriptions)
        subscriptions = [
            Subscription(settings, spark, formats[name], name, registry, topics)
            for name in settings.subscriptions
        ]
        for subscription in subscriptions:
            stack.callback(_close, subscription)
        figures = {one.name: one.rebuild.figures for one in subscriptions}
        pulse = Pulse()
        stack.enter_context(listening(spark, figures))
        stack.enter_context(serve(settings.metrics_listen, settings.metrics_hosts, figures, pulse))
        stack.enter_context(
            telemetry(settings, figures, lambda: {one.name: one.manifest for one in subscriptions})
        )
        watch = _Watch(settings, subscriptions, stopping, pulse)
        try:
            with _ends_with_spark(stopping):
                watch.run()
        finally:
            watch.stop()
        if stopping.is_set():
            _log.info("stopped")
    return 0


def _close(subscription: Subscription) -> None:
    # With Spark's JVM gone, its connections are, too.
    with suppress(Py4JError, OSError):
        subscription.rebuild.close()


@contextmanager
def _ends_with_spark(stopping: threading.Event) -> Iterator[None]:
    """Treat the end of the JVM as a stop if one was requested, else as a transient error."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ConsumerError) or (every := every_table(error)) is None:
            raise
        if not stopping.is_set():
            raise every from error
        _log.warning("Spark has ended before the job: %s", cause(error))


class _Watch:
    """The job's loop: starts the queries of subscriptions, and supervises them.

    Args:
        settings: Settings of the job.
        subscriptions: All subscriptions of the job.
        stopping: Event that ends the loop.
        pulse: Heartbeat of the loop.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        subscriptions: list[Subscription],
        stopping: threading.Event,
        pulse: Pulse,
    ) -> None:
        self._settings = settings
        self._waiting = list(subscriptions)
        self._running: dict[Subscription, StreamingQuery] = {}
        self._ended: dict[Subscription, ConsumerError] = {}
        # Times of retry of held subscriptions; without any if the job is to end at `endpos`.
        self._retry_at: dict[Subscription, float] = {}
        # By subscription, the last applied marker and the number of refusals since.
        self._refusals: dict[Subscription, tuple[int, int]] = {}
        self._stopping = stopping
        self._pulse = pulse
        self._all = list(subscriptions)
        self._unchecked = set(settings.history)

    def run(self) -> None:
        """Loop until nothing is left to do, or the job is stopped.

        Raises:
            FatalConsumerError: all remaining subscriptions are held; a person must act.
            TransientConsumerError: they are, and it may pass; or a failure concerns every table.
        """
        reported_at = time.monotonic()
        while (self._running or self._waiting) and not self._stopping.is_set():
            self._pulse.beat()
            for subscription in list(self._waiting):
                with self._holding(subscription):
                    self._begin(subscription)
            for subscription in list(self._running):
                with self._holding(subscription):
                    subscription.report()
                    self._supervise(subscription)
            if time.monotonic() - reported_at > _REPORT_S:
                reported_at = time.monotonic()
                _log_missing(self._settings, [*self._waiting, *self._running])
                self._warn_of_names()
            self._retry_held()
            self._stopping.wait(_POLL_S)
        if self._stopping.is_set():
            return
        self._warn_of_names()
        if self._ended:
            raise _ended_badly(self._ended)

    def stop(self) -> None:
        """End all queries."""
        _stop(self._running, self._settings.shutdown_timeout_s)

    @contextmanager
    def _holding(self, subscription: Subscription) -> Iterator[None]:
        """Hold a subscription for which the block fails; raise errors that concern every table.

        Refusals of the user are raised when they do not pass: a server that restarts may not know
        its users yet. Wherever one comes, the subscription is started again after a pause.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, AccessError) and self._start_again(subscription, error):
                return
            if (every := every_table(error)) is not None:
                raise every from error
            if subscription in self._waiting:
                self._waiting.remove(subscription)
            self._end(subscription)
            known = as_error(f"subscription {subscription.name}", error)
            self._ended[subscription] = known
            if isinstance(known, _TablesHeldError):
                return
            if not self._settings.available_now and self._settings.endpos is None:
                self._retry_at[subscription] = time.monotonic() + _RETRY_S
            subscription.hold(known)

    def _start_again(self, subscription: Subscription, error: AccessError) -> bool:
        """Let a refused subscription start again after a pause; return False after the last try."""
        marker = subscription.manifest.marker
        before, count = self._refusals.get(subscription, (marker, 0))
        count = count + 1 if before == marker else 1
        self._refusals[subscription] = marker, count
        if count >= TRIES:
            return False
        self._end(subscription)
        if subscription not in self._waiting:
            self._waiting.append(subscription)
        wait_s = BACK_OFF_S * 2 ** (count - 1)
        _log.warning("retrying in %g s: %s", wait_s, error.message)
        self._stopping.wait(wait_s)
        return True

    def _warn_of_names(self) -> None:
        """Warn, once, of names in `consumer.history` that are no subscription's tables.

        It waits until all subscriptions have been read, and their states list what they have.
        """
        manifests = [one.manifest for one in self._all]
        if not self._unchecked or self._waiting or any(one.marker < 0 for one in manifests):
            return
        if not all(map(_is_idle, self._running.values())):
            return
        known = {topic_identifier(name) for one in manifests for name in one.known_tables()}
        for name in sorted(self._unchecked - known):
            _log.warning(
                "consumer.history has %s, and no such table is published: write it as schema.table,"
                " without quotes inside; under publish_via_partition_root the root",
                name,
            )
        self._unchecked.clear()

    def _retry_held(self) -> None:
        for subscription, due in list(self._retry_at.items()):
            if time.monotonic() >= due:
                del self._retry_at[subscription], self._ended[subscription]
                self._waiting.append(subscription)

    def _begin(self, subscription: Subscription) -> None:
        subscription.load()
        if subscription.is_complete():
            _log.info("already complete: subscription=%s", subscription.name)
        elif subscription.is_there():
            self._running[subscription] = subscription.start()
        elif self._settings.available_now:
            _log.info("no marker topic: subscription=%s", subscription.name)
        else:
            subscription.hold_as_gone()
            return
        self._waiting.remove(subscription)

    def _end(self, subscription: Subscription) -> None:
        if (query := self._running.pop(subscription, None)) is not None:
            _stop({subscription: query}, self._settings.shutdown_timeout_s)

    def _supervise(self, subscription: Subscription) -> None:
        query = self._running[subscription]
        if subscription.is_complete():
            self._end(subscription)
            lsn = lsn_text(subscription.manifest.complete_lsn)
            _log.info("complete: subscription=%s end_lsn=%s", subscription.name, lsn)
        elif subscription.failure is not None or not query.isActive:
            self._follow_end(subscription, query)
        elif subscription.is_stuck():
            raise _tables_held(subscription)
        elif subscription.held and _is_idle(query):
            subscription.release()

    def _follow_end(self, subscription: Subscription, query: StreamingQuery) -> None:
        """Restart a query that has ended, unless it has read everything."""
        failed = subscription.failure is not None or query.exception() is not None
        if failed or not self._settings.available_now:
            failure = subscription.end_reason(query)
            if not isinstance(failure, TransientConsumerError) or not subscription.may_restart():
                raise failure
            _log.warning(
                "restarting the query: subscription=%s: %s", subscription.name, failure.message
            )
            self._end(subscription)
            self._waiting.append(subscription)
            return
        del self._running[subscription]
        _log.info(
            "caught up: subscription=%s end_lsn=%s",
            subscription.name,
            lsn_text(subscription.manifest.end_lsn),
        )
        if subscription.manifest.has_held_tables:
            raise _tables_held(subscription)


def _is_idle(query: StreamingQuery) -> bool:
    """Whether a query has read everything that there is."""
    return str(query.status["message"]).startswith(_IDLE)


class _TablesHeldError(FatalConsumerError):
    """A subscription has been read completely, and some of its tables are held."""


def _ended_badly(errors: Mapping[Subscription, ConsumerError]) -> ConsumerError:
    message = "; ".join(f"subscription {one.name}: {why.message}" for one, why in errors.items())
    hints = dict.fromkeys(why.hint for why in errors.values() if why.hint)
    passing = all(isinstance(why, TransientConsumerError) for why in errors.values())
    kind = TransientConsumerError if passing else FatalConsumerError
    return kind(message, hint="; ".join(hints) or None)


def _tables_held(subscription: Subscription) -> _TablesHeldError:
    manifest = subscription.manifest
    by_gateway = manifest.held_by_gateway
    histories = [one.held for one in manifest.histories.values() if one.held is not None]
    return _TablesHeldError(
        f"everything until {lsn_text(manifest.end_lsn)} has been read,"
        f" but {'; '.join(manifest.missing())}",
        hint="; ".join(
            sorted(
                {hold.hint or "" for hold in (*manifest.held_by_job.values(), *histories)}
                | {f"remove the cause at the source, or {COPY_AGAIN}" for _ in by_gateway}
            )
        ),
    )


def _log_missing(settings: ConsumerSettings, subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        manifest = subscription.manifest
        if settings.endpos is not None:
            missing = "; ".join(manifest.missing()) or "markers until there"
            _log.info(
                "waiting: subscription=%s is at %s of %s, for %s",
                subscription.name,
                lsn_text(manifest.end_lsn),
                lsn_text(settings.endpos),
                missing,
            )


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
            # Whatever it still commits is correct, and the rest is read again.
            _log.warning(
                "batch abandoned; the next start repeats it: subscription=%s: %s",
                subscription.name,
                cause(error),
            )
