"""Rebuilt tables of one subscription by its manifests, while the job is running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_consumer.display import logger
from spark_consumer.errors import TransientConsumerError
from spark_consumer.formats.choice import open_format
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.registry import Schemas
from spark_consumer.names import lsn_text, table_folder
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.tuning import query_settings, tuned
from spark_consumer.states.manifests import Manifest, Manifests, TableState
from spark_consumer.states.points import why_none
from spark_consumer.verify.window import Window, read_window

__all__ = ["RebuiltTables"]

_POLL_S: Final = 0.2
_TELL_S: Final = 5.0
"""Seconds until the first log line while the tables are awaited; doubled from line to line."""
_LOG: Final = logger(__name__)


class RebuiltTables:
    """Read-only access to the rebuilt tables of one subscription.

    Args:
        settings: Settings of the job.
        spark: Any session of the application.
        subscription: Name of the subscription.
        schemas: Writer schemas by ID.
        deadline: Value of `time.monotonic` at which waiting ends.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        subscription: str,
        schemas: Schemas,
        deadline: float,
    ) -> None:
        self.subscription = subscription
        self._settings = settings
        self._spark = spark.newSession()
        self._tables = open_format(spark, settings, subscription)
        self._tables.prepare(self._spark)
        self._schemas = schemas
        self._deadline = deadline
        self._manifests = Manifests(spark, settings.warehouse, subscription)

    def now(self, lsn: int) -> Manifest:
        """Return the newest state, once the tables are at or beyond an LSN.

        Raises:
            TransientConsumerError: they do not reach it in time.
        """
        interval = _TELL_S
        next_time = time.monotonic() + interval
        while True:
            manifest = self._manifests.newest()
            if manifest is not None and manifest.marker >= 0 and manifest.end_lsn >= lsn:
                return manifest
            reached = lsn_text(manifest.end_lsn) if manifest is not None else "nowhere"
            if time.monotonic() > next_time:
                _LOG.info(
                    "the tables are at %s, waiting for %s; gateway and Spark job have to run",
                    reached,
                    lsn_text(lsn),
                )
                next_time += interval
                interval *= 2
            if time.monotonic() > self._deadline:
                raise TransientConsumerError(
                    f"subscription {self.subscription}: the tables are at {reached}, and do not"
                    f" reach {lsn_text(lsn)}",
                    hint="are the gateway and the Spark job running? see also --timeout",
                )
            time.sleep(_POLL_S)

    def before(self, lsn: int) -> Manifest:
        """Return the newest state that is not beyond an LSN.

        Raises:
            TransientConsumerError: there is no such state.
        """
        state = self._manifests.at(lsn=lsn)
        if state is None:
            raise TransientConsumerError(
                f"subscription {self.subscription}: there is no state of the tables at or before"
                f" {lsn_text(lsn)}",
                hint=why_none(self._manifests),
            )
        return replace(state, end_lsn=min(state.end_lsn, lsn))

    def read(self, name: str, state: TableState) -> DataFrame:
        """Return the rows of a table at a version."""
        path = table_folder(self._settings.warehouse, self.subscription, name)
        return self._tables.rows_at(self._spark, path, state.version)

    def window(
        self,
        name: str,
        begin: TableState,
        end: TableState,
        columns: StructType,
        key: tuple[str, ...],
    ) -> Window:
        """Return the changes from one state of a table to another; see `read_window`."""
        return read_window(
            self._spark,
            self._settings,
            self._schemas,
            self.table(name).position_at(begin.version),
            self.table(name).position_at(end.version),
            columns,
            key,
        )

    @contextmanager
    def tuned(self, name: str) -> Iterator[None]:
        """Let queries over a table's rows be planned for its size while the block runs."""
        with tuned(self._spark, query_settings(self.table(name).bytes())):
            yield

    def table(self, name: str) -> Table:
        """Open a table, for its history."""
        path = table_folder(self._settings.warehouse, self.subscription, name)
        label = f"subscription {self.subscription}, table {name}"
        return self._tables.table(self._spark, path, label)
