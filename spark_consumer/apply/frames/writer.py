"""Writer of epochs whose records are in a Spark frame."""

from __future__ import annotations

from spark_consumer.apply.frames.batch import Batch, after
from spark_consumer.apply.frames.max_keys import Frontiers
from spark_consumer.apply.frames.strategies import write
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found, Written
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.decode import changes
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.records import FrameRecords
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import Epoch
from spark_consumer.spark.tuning import stored

__all__ = ["FrameWriter"]


class FrameWriter:
    """Writer of `FrameRecords`; see `spark_consumer.apply.applier.EpochWriter`.

    Args:
        schemas: Writer schemas by ID.
        frontiers: Greatest keys of tables.
    """

    def __init__(self, schemas: Schemas, frontiers: Frontiers) -> None:
        self._schemas = schemas
        self._frontiers = frontiers

    def write(
        self,
        table: Table,
        columns: tuple[ColumnPlan, ...],
        epoch: Epoch,
        commit: Commit,
        found: Found | None,
        mode: WriteMode,
    ) -> Written:
        """See `EpochWriter`."""
        assert isinstance(epoch.records, FrameRecords)
        changed = changes(epoch.records.frame, epoch.pieces, columns, epoch.key, self._schemas)
        with stored(changed) as kept:
            batch = Batch(
                table,
                columns,
                epoch,
                kept,
                commit,
                found,
                mode,
                frontiers=self._frontiers,
            )
            skipped = write(batch)
        return Written(after(table, commit).version, skipped)
