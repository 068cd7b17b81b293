"""Writer of epochs whose records are in a Spark frame."""

from __future__ import annotations

from contextlib import nullcontext

from pyspark.sql import SparkSession

from spark_consumer.apply.frames.batch import Batch
from spark_consumer.apply.frames.max_keys import Frontiers
from spark_consumer.apply.frames.strategies import write
from spark_consumer.formats.commit_metadata import Commit, Found, Written
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.decode import changes
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.records import FrameRecords
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import Epoch
from spark_consumer.spark.tuning import INTERPRETED, TABLE_BYTES, stored, tuned

__all__ = ["FrameWriter"]


class FrameWriter:
    """Writer of `FrameRecords`; see `spark_consumer.apply.applier.EpochWriter`.

    Args:
        spark: Session that nothing else uses meanwhile.
        schemas: Writer schemas by ID.
        frontiers: Greatest keys of tables.

    Attributes:
        small: Whether records are on the driver, and the session is tuned for it.
    """

    def __init__(self, spark: SparkSession, schemas: Schemas, frontiers: Frontiers) -> None:
        self._spark = spark
        self._schemas = schemas
        self._frontiers = frontiers
        self._compiled = {key: str(spark.conf.get(key)) for key in INTERPRETED}
        self.small = False

    def write(
        self,
        table: Table,
        columns: tuple[ColumnPlan, ...],
        epoch: Epoch,
        commit: Commit,
        found: Found | None,
        *,
        empty: bool,
        recreate: bool,
    ) -> Written:
        """See `EpochWriter`."""
        assert isinstance(epoch.records, FrameRecords)
        changed = changes(epoch.records.frame, epoch.pieces, columns, epoch.key, self._schemas)
        small = self.small
        with nullcontext(changed.coalesce(1)) if small else stored(changed) as kept:
            batch = Batch(
                table,
                columns,
                epoch,
                kept,
                commit,
                found,
                empty=empty,
                recreate=recreate,
                small=small,
                frontiers=self._frontiers,
            )
            # A small batch says little about the table, and compiled code reads a large one better.
            large = small and not empty and (batch.size is None or batch.size > TABLE_BYTES)
            with tuned(self._spark, self._compiled) if large else nullcontext():
                skipped = write(batch)
        return Written(table.version(), skipped)
