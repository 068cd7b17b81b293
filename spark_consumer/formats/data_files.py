"""Files of a table, for a writer that replaces some of them without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField

from spark_consumer.formats.commit_metadata import Version

__all__ = ["DataFile", "DataFiles", "StoredColumn"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file with rows of a table, or one that is to become that.

    Attributes:
        path: Absolute path, for Hadoop.
        name: The file as the table's log names it.
        size: Size in bytes.
        rows: Number of rows, deleted ones among them.
        statistics: Number of rows, nulls and bounds by column, as JSON in the form of Delta's
            protocol, "Per-file Statistics".
        deleted: Descriptor of the rows that are deleted, in the form of Delta's protocol, "Deletion
            Vectors"; None if none are.
    """

    path: str
    name: str
    size: int
    rows: int
    statistics: str
    deleted: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column in files.

    Attributes:
        name: Name in files.
        number: Number in files; None if columns have none.
        has_statistics: Whether a file's statistics include it.
    """

    name: str
    number: int | None
    has_statistics: bool = True


@dataclass(frozen=True, slots=True)
class DataFiles:
    """All rows of a table at a version.

    Attributes:
        version: Version of the table.
        files: Their files.
        fields: Columns of the table, in order.
        columns: Columns in files, by name.
        can_mark: Whether rows of the files may be marked as deleted.
        marking: Entries of the format's own in the first commit that marks some.
        actions: Entries of the format's own in the commit, if the columns are to change.
        has_feed: Whether readers learn which rows change, by files of them.
        entry: The version's commit, as far as it says whose it is, if this process made it.
    """

    version: Version
    files: tuple[DataFile, ...]
    fields: tuple[StructField, ...]
    columns: Mapping[str, StoredColumn]
    can_mark: bool = False
    marking: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    has_feed: bool = False
    entry: str | None = None

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(file.size for file in self.files)
