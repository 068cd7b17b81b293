"""Reader of the records of many topics at once, by one Kafka consumer in the driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_consumer.apply.driver.records import DriverRecords
from spark_consumer.settings import ConsumerSettings, source_options
from spark_consumer.spark.tuning import SMALL_BYTES

__all__ = ["SmallReader"]

_SILENCE_MS: Final = 10_000


class SmallReader:
    """Reader of few records; keeps its connections from cut to cut. Thread-safe.

    Args:
        spark: Any session.
        settings: Settings with address and properties of the broker.
    """

    def __init__(self, spark: SparkSession, settings: ConsumerSettings) -> None:
        jvm: Any = spark._jvm
        self._java = jvm.pgsluice.small
        self._properties = {
            name.removeprefix("kafka."): value for name, value in source_options(settings).items()
        }
        self._lock = threading.Lock()
        self._consumer: Any = None

    def read(
        self, spans: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> dict[str, DriverRecords] | None:
        """Return the committed records between offsets; None if they have too many bytes.

        Topics are missing of which the broker gave nothing more for some time.

        Args:
            spans: First offset and the one after the last, by topic and partition.

        Raises:
            Py4JJavaError: Kafka's client failed.
        """
        topics, numbers = [], []
        for topic, parts in spans.items():
            for number, (start, end) in parts.items():
                topics.append(topic)
                numbers += [number, start, end]
        with self._lock:
            if self._consumer is None:
                self._consumer = self._java.Reader(self._properties)
            try:
                found = self._consumer.read(topics, numbers, SMALL_BYTES, _SILENCE_MS)
            except Exception:
                self._close()
                raise
        if found is None:
            return None
        made = {topic: found.get(topic) for topic in spans}
        return {
            topic: DriverRecords(topic, java) for topic, java in made.items() if java is not None
        }

    def close(self) -> None:
        """Close the consumer, if there is one; the next read makes another."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
