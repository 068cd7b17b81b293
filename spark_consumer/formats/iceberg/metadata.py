"""Metadata of an Iceberg table, and commits that are made on top of it or not at all.

Iceberg's own operations refresh the metadata before they commit, and are then on top of whatever
has come meanwhile. Here they are gathered in a transaction that is never committed itself: its
result replaces the metadata that it began with by one compare-and-set, `State.replace`, of the
table's pointer: see `pointers`.

A snapshot has the metadata of the job's commit in its summary. Versions of a table are the sequence
numbers of its snapshots.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from spark_consumer.errors import TableError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.commit_metadata import Commit, Version, outrun
from spark_consumer.formats.iceberg.pointers import CatalogPointer, FolderPointer, Pointer

__all__ = ["COMMIT", "Metadata", "State", "commit_of", "each"]

COMMIT: Final = "pgsluice.commit"
"""Key of the job's metadata in the summary of a snapshot."""

PROPERTIES: Final = {
    # Each commit writes a file of metadata, and the newest one has all snapshots.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a table when it is created, beside the version of the format."""

_REQUIRED: Final = re.compile(r'("(?:nullable|containsNull|valueContainsNull)":)false')
_EXCEPTIONS: Final = "org.apache.iceberg.exceptions."
_STALE: Final = (_EXCEPTIONS + "CommitFailedException", _EXCEPTIONS + "AlreadyExistsException")


class Metadata:
    """Metadata of the table in one folder.

    Args:
        spark: Any session of the application.
        path: Folder of the table.
        label: Name of the table in messages.
        catalog: Catalog that has the table; None if it is found by its folder.
    """

    def __init__(
        self, spark: SparkSession, path: str, label: str, catalog: Catalog | None = None
    ) -> None:
        self.label = label
        self.path = path
        self._spark = spark
        self._gateway: Any = spark.sparkContext._gateway
        jvm: Any = spark._jvm
        self.jvm = jvm
        self._iceberg = jvm.org.apache.iceberg
        self._pointer: Pointer = (
            FolderPointer(spark, path) if catalog is None else CatalogPointer(spark, path, catalog)
        )

    @property
    def name(self) -> str:
        """Name of the table for Spark's reader of Iceberg."""
        return self._pointer.name

    def table(self) -> Any | None:
        """Return Iceberg's own object for the newest state; None if there is no table."""
        return self._pointer.load(self.label)

    def state(self) -> State | None:
        """Return the newest state; None if there is no table.

        Raises:
            TableError: its metadata are of a table in another folder, or missing.
            TransientConsumerError: the catalog does not answer.
        """
        table = self.table()
        if table is None:
            return None
        # Its files would be read there, and removed there by maintenance.
        if self._qualified(table.location()) != self._qualified(self.path):
            raise self._pointer.elsewhere(self.label, str(table.location()))
        changes = table.newTransaction()
        return State(self, changes.underlyingOps(), changes.startMetadata(), changes)

    def created(self, fields: Sequence[StructField], version: int) -> State:
        """Return the state of a table that does not exist yet, and that a commit creates.

        Args:
            fields: Columns of the table.
            version: Version of Iceberg's format.
        """
        properties = {**PROPERTIES, "format-version": str(version)}
        made = self._pointer.creation(self.schema(fields), properties)
        return State(self, made.underlyingOps(), None, made)

    def create(self, metadata: Any) -> None:
        """Create the table with metadata that are those of another one, but for the folder."""
        # Iceberg checks the types of the columns against the version, which is 2 by default.
        properties = {"format-version": str(metadata.formatVersion())}
        made = self._pointer.creation(metadata.schema(), properties)
        made.underlyingOps().commit(None, metadata)

    def schema(self, fields: Sequence[StructField]) -> Any:
        """Return Iceberg's schema of columns, which may all be null.

        Raises:
            TableError: Iceberg cannot have them.
        """
        for field in fields:
            if self._iceberg.MetadataColumns.isMetadataColumn(field.name):
                raise TableError(
                    f"{self.label}: Iceberg reserves columns called {field.name}",
                    hint="rename it, or leave it out of the publications",
                )
        text = _REQUIRED.sub(r"\1true", StructType(list(fields)).json())
        kind = self._spark._jsparkSession.parseDataType(text)
        try:
            return self._iceberg.spark.SparkSchemaUtil.convert(kind)
        except Py4JJavaError as error:
            raise TableError(
                f"{self.label}: Iceberg cannot have these columns:"
                f" {error.java_exception.getMessage()}",
                hint="rename one, or leave it out of the publications",
            ) from error

    def fields(self, metadata: Any) -> list[StructField]:
        """Return the columns in order."""
        kind = self._iceberg.spark.SparkSchemaUtil.convert(metadata.schema())
        return list(StructType.fromJson(json.loads(kind.json())).fields)

    def stale(self, error: Py4JJavaError) -> bool:
        """Whether a commit failed because another one was made."""
        return any(self._is(error, name) for name in _STALE)

    def _qualified(self, place: str) -> str:
        path = self.jvm.org.apache.hadoop.fs.Path(place)
        hadoop = self._spark._jsc.hadoopConfiguration()
        return str(path.getFileSystem(hadoop).makeQualified(path).toString())

    def _is(self, error: Py4JJavaError, name: str) -> bool:
        return bool(is_instance_of(self._gateway, error.java_exception, name))


@dataclass(frozen=True, slots=True)
class State:
    """One state of a table, and the transaction that gathers what a commit on top of it has.

    Attributes:
        metadata: Metadata of the table in its folder.
        operations: Iceberg's reads and writes of its metadata.
        base: Iceberg's metadata of the state; None for a table that does not exist yet.
        changes: Iceberg's transaction.
    """

    metadata: Metadata
    operations: Any
    base: Any
    changes: Any

    @property
    def version(self) -> Version:
        """Version; 0 for a table without snapshots."""
        snapshot = self.base.currentSnapshot()
        return Version(0 if snapshot is None else snapshot.sequenceNumber())

    def total(self, what: str) -> int:
        """Return one of the totals that Iceberg keeps in each snapshot."""
        snapshot = self.base.currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get(what) or 0)

    def snapshot(self, version: Version) -> Any | None:
        """Return the snapshot of a version; None if there is none any more."""
        listed = self.base.snapshots()
        # In the order in which they came, so far; each look is a call of Java.
        at = bisect_left(range(len(listed)), version, key=lambda n: listed[n].sequenceNumber())
        likely = [listed[at]] if at < len(listed) else []
        return next((s for s in (*likely, *listed) if s.sequenceNumber() == version), None)

    def snapshots(self, newest: Any = None) -> Iterator[Any]:
        """Yield the snapshots from `newest` back, by default the newest, as far as known."""
        snapshot = newest or self.base.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.base.snapshot(parent)

    def replace(self) -> Version:
        """Make the commit; return the version that it gives the table.

        Raises:
            TransientConsumerError: the table is not in this state any more.
        """
        made = self.changes.currentMetadata()
        try:
            self.operations.commit(self.base, made)
        except Py4JJavaError as error:
            if self.metadata.stale(error):
                raise outrun(self.metadata.label) from error
            raise
        snapshot = made.currentSnapshot()
        return Version(0 if snapshot is None else snapshot.sequenceNumber())


def commit_of(snapshot: Any) -> Commit | None:
    """Return the metadata of the job's commit; None for another writer's."""
    summary: Mapping[str, str] = snapshot.summary()
    return Commit.from_text(summary.get(COMMIT))


def each(found: Any) -> Iterator[Any]:
    """Yield what a Java iterable has."""
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()
