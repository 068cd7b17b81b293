"""Subscriber tables in Iceberg: `spark_consumer.formats.protocol.Table`.

A table's position is in the summary of its newest snapshot, written by the same commit as the
rows. Every write is on top of the state that was read, by `metadata` and `workspace`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.changes import KeyedChanges, ValueChanges, WriteMode
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found, Version, outrun
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.iceberg.columns import alter_columns, replace_columns
from spark_consumer.formats.iceberg.maintenance import compact_files, remove_files, set_retention
from spark_consumer.formats.iceberg.merge import exchange_rows, merge_mode, upsert_rows
from spark_consumer.formats.iceberg.metadata import Metadata, State, commit_of
from spark_consumer.formats.iceberg.workspace import How, Workspace
from spark_consumer.formats.schema_evolution import Step
from spark_consumer.kafka.position import Position
from spark_consumer.names import quoted

__all__ = ["IcebergTable", "rows_of"]


def rows_of(spark: SparkSession, state: State, version: Version | None = None) -> DataFrame:
    """Return the rows of a table.

    Args:
        spark: Session to read with.
        state: State of the table.
        version: Version of the rows; None for that of the state.

    Raises:
        TableError: there is no such version any more.
    """
    reader = spark.read.format("iceberg")
    if version is None:
        # With the columns of the table: those of its snapshot may be older. A commit on top of
        # `state` shows that nothing has come in between.
        return reader.load(state.metadata.name)
    snapshot = state.snapshot(version)
    if snapshot is None:
        raise TableError(
            f"{state.metadata.label}: there is no version {version} any more",
            hint="keep_hours says for how long states are kept",
        )
    at = reader.option("versionAsOf", str(snapshot.snapshotId()))
    return at.load(state.metadata.name)


class IcebergTable:
    """One subscriber table, used through one session.

    Args:
        spark: Session that the format has prepared.
        path: Folder of the table.
        label: Name of the table in messages.
        version: Version of Iceberg's format in which the table is created.
        catalog: Catalog that has the table; None if it is found by its folder.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        label: str,
        version: Literal[2, 3] = 3,
        catalog: Catalog | None = None,
    ) -> None:
        self.spark = spark
        self.path = path
        self.label = label
        self._metadata = Metadata(spark, path, label, catalog)
        self._format_version = version

    def version(self) -> Version:
        """See `Table`."""
        state = self._metadata.state()
        return NO_VERSION if state is None else state.version

    def believed(self) -> Version | None:
        """See `Table`."""
        return None

    def find(self, trusted: Version = NO_VERSION) -> Found | None:
        """See `Table`."""
        state = self._metadata.state()
        return None if state is None else self._find(state, trusted)

    def _find(self, state: State, trusted: Version) -> Found:
        for snapshot in state.snapshots():
            if (commit := commit_of(snapshot)) is not None:
                return Found(state.version, commit)
            operation, version = snapshot.operation(), snapshot.sequenceNumber()
            # Files that take the place of others with the same rows.
            if operation != "replace" and version > trusted:
                raise TableError(
                    f"{self.label}: version {version} was written by another writer ({operation})",
                    hint="let nothing but the Spark job write to the table; copy it again",
                )
        raise TableError(
            f"{self.label}: the folder {self.path} holds an Iceberg table without a position",
            hint=f"the folder must be the Spark job's own; remove it, or {COPY_AGAIN}",
        )

    def position_at(self, version: Version) -> Position:
        """See `Table`."""
        state = self._state()
        for snapshot in state.snapshots(state.snapshot(version)):
            commit = commit_of(snapshot)
            if snapshot.sequenceNumber() <= version and commit is not None:
                return commit.position
        raise TableError(
            f"{self.label}: its snapshots no longer say at which position version {version} is",
            hint="let nobody expire snapshots before keep_hours says so",
        )

    def rows(self) -> DataFrame:
        """See `Table`."""
        return rows_of(self.spark, self._state())

    def fields(self) -> list[StructField]:
        """See `Table`."""
        return self._metadata.fields(self._state().base)

    def bytes(self) -> int | None:
        """See `Table`."""
        return self._state().total("total-files-size")

    def files(self) -> int | None:
        """See `Table`."""
        return self._state().total("total-data-files")

    def tracks_rows(self) -> bool:
        """See `Table`."""
        return False

    def excludes(self, condition: str) -> bool:
        """See `Table`."""
        return False

    def greatest(self, names: Sequence[str]) -> Mapping[str, int]:
        """See `Table`."""
        return {}

    def write(self, rows: DataFrame, commit: Commit, found: Found | None, mode: WriteMode) -> None:
        """See `Table`."""
        self.stage(rows, found, mode).commit(commit)

    def stage(self, rows: DataFrame, found: Found | None, mode: WriteMode) -> IcebergDraft:
        """See `Table`."""
        if found is None and not mode.empties:
            raise outrun(self.label)
        fields = rows.schema.fields
        state = self._metadata.state()
        if state is None and found is None:
            state = self._metadata.created(fields, self._format_version)
        elif state is None:
            raise outrun(self.label)
        else:
            self._check(state, found)
            if mode is WriteMode.REPLACE_TABLE:
                replace_columns(state, fields)
        workspace = Workspace(self.spark, state, empty=True, properties={})
        try:
            rows.writeTo(workspace.name).append()
        except BaseException:
            workspace.close()
            raise
        return IcebergDraft(workspace, "replace" if mode.empties else "add")

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        """See `Table`."""
        with self._changing(found) as workspace:
            skipped = upsert_rows(workspace, changes)
            workspace.publish(commit, "add")
        return skipped

    def exchange(self, changes: ValueChanges, commit: Commit, found: Found | None) -> None:
        """See `Table`."""
        with self._changing(found) as workspace:
            exchange_rows(workspace, changes)
            workspace.publish(commit, "add")

    def data_files(
        self, found: Found | None, most: int, fields: Sequence[StructField] | None = None
    ) -> DataFiles | None:
        """See `Table`."""
        return None

    def replace_files(
        self,
        files: DataFiles,
        removed: Collection[DataFile],
        added: Collection[DataFile],
        commit: Commit,
        changes: Collection[DataFile] | None = None,
    ) -> Version:
        """See `Table`; `data_files` says that it is not possible."""
        raise NotImplementedError

    def alter(self, steps: Iterable[Step]) -> None:
        """See `Table`."""
        state = self._state()
        found = self._find(state, state.version)
        rows = alter_columns(state, steps, rows_of(self.spark, state))
        if rows is None:
            state.replace()
            return
        with Workspace(self.spark, state, empty=True, properties={}) as workspace:
            rows.writeTo(workspace.name).append()
            workspace.publish(found.commit, "replace")

    def keep_history(self, hours: float) -> None:
        """See `Table`."""
        set_retention(self._state(), hours)

    def compact(self, commit: Commit, *, small: int) -> None:
        """See `Table`."""
        state = self._state()
        if self._find(state, NO_VERSION).commit != commit:
            raise outrun(self.label)
        compact_files(self.spark, state, commit, small)

    def vacuum(self, hours: float) -> None:
        """See `Table`."""
        remove_files(self.spark, self._state(), hours)

    def _state(self) -> State:
        state = self._metadata.state()
        if state is None:
            raise TableError(f"{self.label}: the folder {self.path} holds no Iceberg table")
        return state

    def _changing(self, found: Found | None) -> Workspace:
        """Return a copy of the table, whose rows can be changed by MERGE."""
        state = self._metadata.state()
        if state is None or found is None:
            raise outrun(self.label)
        self._check(state, found)
        return Workspace(self.spark, state, empty=False, properties=merge_mode(state))

    def _check(self, state: State, found: Found | None) -> None:
        """Check that a state has the rows and the position of `found`."""
        # Commits of others since then may be harmless. Where the folder was restored, the number
        # of a version can have come again.
        if found is not None and self._find(state, found.version).commit != found.commit:
            raise outrun(self.label)


class IcebergDraft:
    """See `spark_consumer.formats.protocol.Draft`."""

    def __init__(self, workspace: Workspace, how: How) -> None:
        self._workspace = workspace
        self._how = how

    def rows(self, names: Sequence[str]) -> DataFrame:
        """See `Draft`."""
        return self._workspace.rows().select(*map(quoted, names))

    def commit(self, commit: Commit) -> Version:
        """See `Draft`."""
        with self._workspace:
            return self._workspace.publish(commit, self._how)

    def discard(self) -> None:
        """See `Draft`."""
        self._workspace.close()
