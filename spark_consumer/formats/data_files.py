"""Files of a small table, for a writer that replaces all of them by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructField

from spark_consumer.formats.commit_metadata import Version

__all__ = ["DataFile", "DataFiles", "NewFile", "StoredColumn"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file with rows of a table.

    Attributes:
        path: Absolute path, for Hadoop.
        name: The file as the table's log names it.
        size: Size in bytes.
        rows: Number of rows.
    """

    path: str
    name: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column in files.

    Attributes:
        name: Name in files.
        number: Number in files; None if columns have none.
    """

    name: str
    number: int | None


@dataclass(frozen=True, slots=True)
class DataFiles:
    """All rows of a table at a version.

    Attributes:
        version: Version of the table.
        files: Their files: all of their rows belong to the table.
        fields: Columns of the table, in order.
        columns: Columns in files, by name.
        actions: Entries of the format's own in the commit, if the columns are to change.
        entry: The version's commit, as far as it says whose it is, if this process made it.
    """

    version: Version
    files: tuple[DataFile, ...]
    fields: tuple[StructField, ...]
    columns: Mapping[str, StoredColumn]
    actions: tuple[str, ...] = ()
    entry: str | None = None

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(file.size for file in self.files)

    @property
    def cells(self) -> int:
        """Number of values in the files."""
        return sum(file.rows for file in self.files) * len(self.fields)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that has been written and is not part of the table yet.

    Attributes:
        file: The file.
        statistics: Number of rows, nulls and bounds by column, as JSON in the form of Delta's
            protocol, "Per-file Statistics".
    """

    file: DataFile
    statistics: str
