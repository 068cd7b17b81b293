"""Listener of Spark's streaming queries, for the log and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from spark_consumer.display import logger
from spark_consumer.observe.figures import Figures

__all__ = ["listening", "query_name"]

_log: Final = logger(__name__)
_PREFIX: Final = "pgsluice "


def query_name(subscription: str) -> str:
    """Return the name of a subscription's streaming query."""
    return _PREFIX + subscription


@contextmanager
def listening(spark: SparkSession, subscriptions: Mapping[str, Figures]) -> Iterator[None]:
    """Record progress of the queries of these subscriptions while the block runs.

    Args:
        spark: Session that starts the queries.
        subscriptions: Figures to update, by subscription.
    """
    listener = _Listener(subscriptions)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        # A JVM that is gone has no listeners.
        with suppress(PySparkException, Py4JError):
            spark.streams.removeListener(listener)


class _Listener(StreamingQueryListener):
    def __init__(self, subscriptions: Mapping[str, Figures]) -> None:
        self._subscriptions = subscriptions
        self._running: dict[str, Figures] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        figures = self._subscriptions.get((event.name or "").removeprefix(_PREFIX))
        if figures is not None:
            self._running[str(event.id)] = figures
            figures.see()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        # This event names the query by its id alone.
        figures = self._running.get(str(event.id))
        if figures is not None:
            figures.see()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        subscription = (progress.name or "").removeprefix(_PREFIX)
        figures = self._subscriptions.get(subscription)
        if figures is None:
            return
        spent = progress.durationMs
        around = spent.get("triggerExecution", 0) - spent.get("addBatch", 0)
        figures.spend("stream", around / 1000)
        figures.unread_markers = _unread_markers(progress)
        if progress.numInputRows:
            _log.info(
                "micro-batch done: subscription=%s markers=%d unread_markers=%d milliseconds=%s",
                subscription,
                progress.numInputRows,
                figures.unread_markers,
                " ".join(f"{phase}:{number}" for phase, number in sorted(spent.items())),
            )


def _unread_markers(progress: StreamingQueryProgress) -> int:
    found = [source.metrics.get("maxOffsetsBehindLatest", "0") for source in progress.sources]
    return int(float(max(found, key=float, default="0")))
