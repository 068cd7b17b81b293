"""A batch: the changes that one commit writes to one table."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.apply.frames.max_keys import Frontiers
from spark_consumer.errors import TransientConsumerError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.schema_epochs import Epoch

__all__ = ["Batch", "after", "next_serial"]


@dataclass(frozen=True)
class Batch:
    """Changes of one table with one set of columns, and their destination.

    Attributes:
        table: The table.
        columns: Published columns of the table.
        epoch: Epoch of the changes.
        changed: The changes; see `spark_consumer.kafka.decode`. They can be read several times.
        commit: Metadata of the commit.
        found: The table before the commit; None if it does not exist.
        mode: Treatment of the table's rows and columns.
        frontiers: Greatest keys of tables.
    """

    table: Table
    columns: tuple[ColumnPlan, ...]
    epoch: Epoch
    changed: DataFrame
    commit: Commit
    found: Found | None
    mode: WriteMode
    frontiers: Frontiers

    def named(self, rows: DataFrame) -> DataFrame:
        """Return the rows in `v` as rows of the table, with its columns' comments."""
        return rows.select(
            *(
                F.col(f"v.`{c.field}`").alias(c.name, metadata={"comment": c.pg_type})
                for c in self.columns
            )
        )

    def append(self, rows: DataFrame) -> None:
        """Append rows, given in `v`, or replace the table's by them; see `mode`."""
        self.table.write(self.named(rows), self.commit, self.found, self.mode)


def next_serial(table: Table, found: Found | None) -> int:
    """Return the serial of a table's next commit; see `Commit`."""
    # If the last one is not known: each serial had a version of its own, so this is greater.
    return table.version() + 1 if found is None else found.commit.serial + 1


def after(table: Table, commit: Commit) -> Found:
    """Return a table after a commit, as its history has it.

    Raises:
        TableError: another writer has changed the rows since.
        TransientConsumerError: another process of the job has made a commit since.
    """
    found = table.find()
    if found is None or found.commit != commit:
        raise TransientConsumerError(
            f"{table.label}: another process has written to it",
            hint="one job writes to a warehouse at a time",
        )
    return found
