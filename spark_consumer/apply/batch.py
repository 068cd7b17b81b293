"""What is to be written to one table by one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.apply.max_keys import Frontiers
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.schema_epochs import Epoch
from spark_consumer.spark.tuning import gather

__all__ = ["Batch", "next_serial"]


@dataclass(frozen=True)
class Batch:
    """Changes of one table with one set of columns, and where they go.

    Attributes:
        table: The table.
        columns: Its published columns.
        epoch: What the changes are.
        changed: The changes; see `spark_consumer.kafka.decode`.
        commit: What the write says of itself.
        found: The table before it; None when it is not there.
        empty: The table's rows go first.
        anew: With `empty`: its columns go, too.
        small: `changed` is on the driver, and the table's session tuned for that. A large batch's
            changes are kept by the executors: they are looked at several times.
        frontiers: The greatest keys of tables.
    """

    table: Table
    columns: tuple[ColumnPlan, ...]
    epoch: Epoch
    changed: DataFrame
    commit: Commit
    found: Found | None
    empty: bool
    anew: bool
    small: bool
    frontiers: Frontiers

    @cached_property
    def size(self) -> int | None:
        """The table's size in bytes; None when it is not known."""
        return self.table.bytes()

    @contextmanager
    def kept(self) -> Iterator[DataFrame]:
        """The changes, for many looks at them; those of a large batch are stored already."""
        if not self.small:
            yield self.changed
            return
        changed = self.changed.persist()
        try:
            yield changed
        finally:
            changed.unpersist()

    def named(self, rows: DataFrame) -> DataFrame:
        """The rows in `v` as rows of the table, with its columns' comments."""
        return rows.select(
            *(
                F.col(f"v.`{c.field}`").alias(c.name, metadata={"comment": c.pg_type})
                for c in self.columns
            )
        )

    def at_hand(self, outcome: DataFrame) -> DataFrame:
        """What will be looked at several times: brought to the driver when the batch is small."""
        return gather(outcome, self.table.spark) if self.small and not self.empty else outcome

    def rewrite(self, rows: DataFrame) -> None:
        """Let the table hold rows, given in its columns, and nothing else."""
        self.table.write(rows, self.commit, self.found, empty=True, anew=False)

    def append(self, rows: DataFrame) -> None:
        """Append rows, given in `v`; or let the table hold nothing else when it is emptied."""
        self.table.write(
            self.named(rows), self.commit, self.found, empty=self.empty, anew=self.anew
        )


def next_serial(table: Table, found: Found | None) -> int:
    """The serial of a table's next commit; see `Commit`."""
    # Where the last one is not known: each serial has taken a version, so this is greater.
    return table.version() + 1 if found is None else found.commit.serial + 1
