"""A private copy of a table's metadata, in which Spark writes what the table then gets at once.

Spark's writers commit to the table that they write to, on top of its newest state at that time.
Here that is a copy of the state that was read, in a folder that nobody else looks into: its data
files are in the table's own folder from the beginning, and only metadata are private. The files
that the copy's snapshot adds and removes are then committed to the table by `State.replace`: on top
of the state that was read, or not at all. Files of a commit that is not made belong to no snapshot,
and `maintenance` removes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.iceberg.metadata import COMMIT, Metadata, State, each
from spark_consumer.formats.iceberg.session import catalog_of
from spark_consumer.spark.files import Folder

__all__ = ["FOLDER", "Workspace"]

FOLDER: Final = ".writing"
"""Folder of the copies, in the table's; Iceberg takes a name with a dot for none of its own."""

_NAME: Final = "t"

How: TypeAlias = Literal["add", "replace", "same"]
"""How the rows of a copy get into the table; see `Workspace.publish`."""


class Workspace:
    """A copy of a table's metadata, as the state's transaction has them at this time.

    Args:
        spark: Session that writes.
        state: State of the table.
        empty: Whether the copy has no rows.
        properties: Table properties of the copy.
    """

    def __init__(
        self, spark: SparkSession, state: State, *, empty: bool, properties: Mapping[str, str]
    ) -> None:
        jvm = state.metadata.jvm
        self._spark = spark
        self._state = state
        above = f"{state.metadata.path}/{FOLDER}"
        made = uuid.uuid4().hex
        self._folder = Folder(spark, f"{above}/{made}")
        self.path = f"{above}/{made}/{_NAME}"
        self.name = f"{catalog_of(spark, above)}.`{made}`.{_NAME}"
        """Name of the copy in SQL; its columns are those of `t`."""
        self._metadata = Metadata(spark, self.path, state.metadata.label)
        before = state.changes.currentMetadata()
        kept = None if empty else before.currentSnapshot()
        own = {
            "write.data.path": f"{state.metadata.path}/data",
            # They are the table's own.
            "write.metadata.delete-after-commit.enabled": "false",
            **properties,
        }
        builder = jvm.org.apache.iceberg.TableMetadata.buildFrom(before)
        if empty:
            for name in list(before.refs()):
                builder.removeRef(name)
        builder.suppressHistoricalSnapshots().setProperties(own).setLocation(self.path)
        self._before = None if kept is None else kept.snapshotId()
        self._metadata.create(builder.build())

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copy; the data files stay."""
        self._folder.remove_all()

    def table(self) -> Any:
        """Return Iceberg's own object for the copy."""
        return self._metadata.table()

    def rows(self) -> DataFrame:
        """Return the rows of the copy."""
        return self._spark.read.format("iceberg").load(self.path)

    def snapshot(self) -> Any | None:
        """Return the snapshot that was written; None if nothing was."""
        snapshot = self.table().currentSnapshot()
        if snapshot is None or snapshot.snapshotId() == self._before:
            return None
        return snapshot

    def publish(self, commit: Commit, how: How) -> Version:
        """Commit what was written; return the version that it gives the table.

        Args:
            commit: Metadata of the commit.
            how: Whether the copy's rows are added to those of the table, or the changes of the rows
                that the copy began with (`add`), whether they replace all rows (`replace`), or
                whether its files have the same rows as those that they replace (`same`).

        Raises:
            TransientConsumerError: the table has changed since the state was read.
        """
        changes = self._state.changes
        update: Any
        match how:
            case "add":
                update = changes.newRowDelta()
                if self._before is not None:
                    # Otherwise every vector that the table has counts as one that came meanwhile.
                    update.validateFromSnapshot(self._before)
                added, removed = (update.addRows, update.addDeletes), update.removeRows
                undeleted = update.removeDeletes
            case "replace":
                expressions = self._state.metadata.jvm.org.apache.iceberg.expressions.Expressions
                update = changes.newOverwrite().overwriteByRowFilter(expressions.alwaysTrue())
                added, removed = (update.addFile, update.addFile), update.deleteFile
                undeleted = update.deleteFile
            case "same":
                update = changes.newRewrite().validateFromSnapshot(self._before)
                added, removed = (update.addFile, update.addFile), update.deleteFile
                undeleted = update.deleteFile
        snapshot = self.snapshot()
        if snapshot is not None:
            files = self.table().io()
            steps = (
                (snapshot.addedDataFiles, added[0]),
                (snapshot.addedDeleteFiles, added[1]),
                (snapshot.removedDataFiles, removed),
                (snapshot.removedDeleteFiles, undeleted),
            )
            for found, step in steps:
                for file in each(found(files)):
                    step(file)
        update.set(COMMIT, commit.text())
        update.commit()
        return self._state.replace()
