"""Checkpoints of the logs of small tables, written beside the job's work.

Delta writes a checkpoint by queries of Spark, which take a second, and half a minute in a JVM that
has not done it before. Readers need one only now and then; cuts do not wait for it.
"""

from __future__ import annotations

import queue
import threading
import zlib
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.display import logger
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.delta.internals import PrivateLog
from spark_consumer.formats.delta.session import SESSION_SETTINGS
from spark_consumer.spark.failures import cause, every_table
from spark_consumer.spark.tuning import INTERPRETED, tuned

__all__ = ["Checkpoints"]

_log: Final = logger(__name__)
_COMMITS: Final = 500
"""Number of commits between two checkpoints; a reader opens no more small files."""


class Checkpoints:
    """Writes checkpoints one after another, in a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def request(self, spark: SparkSession, path: str, label: str, version: Version) -> None:
        """Request a checkpoint if it is a table's turn after a commit.

        Tables that change in the same cuts take turns. A request that is open when the process
        ends is lost; the next one comes after as many commits.

        Args:
            spark: Any session.
            path: Folder of the table.
            label: Name of the table in messages.
            version: Version of the commit.
        """
        if version == 0 or (version + zlib.crc32(path.encode())) % _COMMITS:
            return
        self._requests.put((path, label))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_all, args=(spark.newSession(),), daemon=True
                )
                self._thread.start()

    def _write_all(self, spark: SparkSession) -> None:
        while True:
            path, label = self._requests.get()
            try:
                with tuned(spark, {**SESSION_SETTINGS, **INTERPRETED}):
                    PrivateLog(spark, path, label).checkpoint()
            except Exception as error:  # the thread goes on, for the other tables
                if every_table(error) is None:
                    _log.warning("%s: no checkpoint of its log: %s", label, cause(error))
