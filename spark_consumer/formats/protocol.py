"""The contract between the job and a table format.

A format keeps rows in versions, and with each version the metadata of the commit that made it. Four
rules make the job exact over any format; `tests/support/spark/memory_format.py` is the shortest
implementation of them:

*One commit.* A method that is given a `Commit` makes one commit or raises. Rows and metadata are in
it together, so whoever sees the rows sees the position until which they are complete.

*On top of what was read.* The job works out what to write from the table as it was `found`. When
any other commit has changed the rows or the position since then, the method raises
`TransientConsumerError` and has written nothing. Commits that leave rows and position as they are
(compaction, properties) may come in between. This is what makes a replay harmless: two processes
that apply the same share both write it on top of the position before it, and one of them fails.

*No other writer.* `Table.find` refuses a table whose rows another writer has changed.

*Versions stay readable* until `Table.vacuum` says otherwise: a version that `keep_hours` covers can
be read, however many there have been since.

Rows are DataFrames of the session that the table was opened with. Columns have the names of the
source's, which are any text; a format whose files cannot have such names maps them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from schemas.settings.consumer import ViewEngine
from spark_consumer.formats.changes import KeyedChanges, ValueChanges, WriteMode
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found, Version
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.schema_evolution import Step
from spark_consumer.formats.view_sql import ViewPlace
from spark_consumer.kafka.position import Position

__all__ = ["Draft", "Table", "TableFormat"]


class TableFormat(Protocol):
    """A table format."""

    @property
    def name(self) -> str:
        """Name of the format in messages."""

    @property
    def reserved(self) -> frozenset[str]:
        """Names of folders that the format keeps beside a table's data; no table may have them."""

    def prepare(self, spark: SparkSession) -> None:
        """Give a session the settings that exact reads and writes of tables need."""

    def has_table(self, spark: SparkSession, path: str) -> bool:
        """Whether a folder has a table of this format."""

    def table(self, spark: SparkSession, path: str, label: str) -> Table:
        """Open a table, whether it exists or not.

        Args:
            spark: Session that nothing else uses meanwhile; it is prepared.
            path: Folder of the table, in any Hadoop file system.
            label: Name of the table in messages: ``subscription s1, table public.t1``.
        """

    def register(self, spark: SparkSession, path: str, label: str) -> bool:
        """Give a table its name in the catalog of the format's tables, if they have one.

        Nothing changes where the table has its name, or is not there yet.

        Args:
            spark: Session that nothing else uses meanwhile; it is prepared.
            path: Folder of the table.
            label: Name of the table in messages.

        Returns:
            Whether it needs no further attempt.

        Raises:
            TableError: another table has the name.
        """

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        """Return the rows of a table at a version, however old, as long as its files exist."""

    def view_settings(self, folder: str, engine: ViewEngine) -> Sequence[str]:
        """Return the statements that an engine needs before it can read tables through views.

        Args:
            folder: Folder above the tables, as the engine names it.
            engine: Engine with the extensions that are made for the format.

        Raises:
            SettingsError: it cannot read tables there.
        """

    def engine_version(self, spark: SparkSession, path: str, version: Version) -> str:
        """Return how engines call a version of the table in a folder.

        Raises:
            TableError: there is no such version.
        """

    def view(self, place: ViewPlace, engine_version: str) -> str:
        """Return what shows a table at a version: the part of CREATE VIEW after the view's name."""


class Table(Protocol):
    """One subscriber table."""

    @property
    def spark(self) -> SparkSession:
        """Session that the table was opened with."""

    @property
    def path(self) -> str:
        """Folder of the table."""

    @property
    def label(self) -> str:
        """Name of the table in messages."""

    # Inspection. Cheap: no Spark job is run if the format can answer without one.

    def version(self) -> Version:
        """Return the newest version; `NO_VERSION` if there is no table."""

    def believed(self) -> Version | None:
        """Return the version after this process's last `replace_files`; None if not known.

        It is the newest one, unless somebody else writes, and then the next commit fails.
        """

    def find(self, trusted: Version = NO_VERSION) -> Found | None:
        """Return the table's newest version and last commit; None if there is no table.

        Args:
            trusted: Version until which the table is known to have only commits of this job.

        Raises:
            TableError: another writer has changed the rows, or the history does not go back to a
                commit of this job.
        """

    def position_at(self, version: Version) -> Position:
        """Return the table's position at a version, whoever has committed since.

        Raises:
            TableError: the history does not go back so far.
        """

    def rows(self) -> DataFrame:
        """Return the rows of the newest version."""

    def fields(self) -> list[StructField]:
        """Return the columns in order."""

    def bytes(self) -> int | None:
        """Return the size of the rows' files in bytes; None if that is not at hand."""

    def files(self) -> int | None:
        """Return the number of the rows' files; None if that is not at hand."""

    def tracks_rows(self) -> bool:
        """Whether readers learn which rows change, as by a change data feed.

        Then a write touches the rows that change and no others.
        """

    # Column statistics, where a format has them: they save time, and decide nothing.

    def excludes(self, condition: str) -> bool:
        """Whether statistics alone show that no row meets a condition on the columns, as `t`."""

    def greatest(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return upper bounds of the values by integer column; columns without one are omitted."""

    # Writes. Each makes one commit; see the rules above for `found` and what is raised.

    def write(self, rows: DataFrame, commit: Commit, found: Found | None, mode: WriteMode) -> None:
        """Append rows; or replace all rows, as TRUNCATE or a new copy does.

        Args:
            rows: Rows in the table's columns and order; in any when they replace the table. A
                column's comment is its PostgreSQL type.
            commit: Metadata of the commit.
            found: The table as it was read; None only if it is emptied: then its contents do not
                matter.
            mode: Treatment of the table's rows and columns; `REPLACE_TABLE` creates a table that
                does not exist.

        Raises:
            TransientConsumerError: the table has changed meanwhile, and nothing was written.
        """

    def stage(self, rows: DataFrame, found: Found | None, mode: WriteMode) -> Draft | None:
        """Do the work of `write`, and leave the commit to the caller.

        Returns:
            None if the format cannot: nothing was written, and `rows` was not run.
        """

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        """Apply changes of rows that are identified by a key: see `KeyedChanges`.

        Returns:
            Number of outcomes that need a row and matched none.

        Raises:
            TransientConsumerError: as for `write`.
        """

    def exchange(self, changes: ValueChanges, commit: Commit, found: Found | None) -> None:
        """Apply changes of rows that are identified by their values: see `ValueChanges`.

        Raises:
            TransientConsumerError: as for `write`.
        """

    # Replacement of files without Spark, of a table of a few files.

    def data_files(
        self, found: Found | None, most: int, fields: Sequence[StructField] | None = None
    ) -> DataFiles | None:
        """Return the files of the newest version, as far as known: `replace_files` finds out.

        Args:
            found: The table as it was read; None only with `fields`.
            most: Bytes that they may have.
            fields: Columns that the table gets with `replace_files`, which creates it if need be;
                None: it has the columns that it has.

        Returns:
            None if they have more, if that is not the newest version, or if `replace_files` is not
            possible.
        """

    def replace_files(
        self,
        files: DataFiles,
        removed: Collection[DataFile],
        added: Collection[DataFile],
        commit: Commit,
        changes: Collection[DataFile] | None = None,
    ) -> Version:
        """Let some files take the place of others, on top of the version of `files`.

        Args:
            files: The result of `data_files`.
            removed: Those of them that are no longer part of the table.
            added: New files in the table's folder, with its columns; and removed ones of which
                other rows are deleted.
            commit: Metadata of the commit.
            changes: Files of the rows that change, where the table `has_feed`: none if no row does;
                None if `removed` and `added` say it.

        Returns:
            The version that it gives the table.

        Raises:
            TransientConsumerError: the table has changed meanwhile; it has none of `added`.
        """

    def alter(self, steps: Iterable[Step]) -> None:
        """Alter the columns by `steps`; can be repeated after an interruption.

        It makes any number of commits, none of which changes the position.

        Raises:
            TableError: the value of existing rows in a new column cannot be parsed.
        """

    # Maintenance, between two cuts.

    def keep_history(self, hours: float) -> None:
        """Keep files and history of replaced versions for a number of hours."""

    def compact(self, commit: Commit, *, small: int) -> None:
        """Merge small files; rows and position stay the same.

        Args:
            commit: Metadata of the job's last commit, which the new version carries, too.
            small: Size in bytes below which a file is small.

        Raises:
            TransientConsumerError: `commit` is not the last one.
        """

    def vacuum(self, hours: float) -> None:
        """Remove files of versions that were replaced more than `hours` ago."""


class Draft(Protocol):
    """Rows that are written and not committed, so not visible to readers."""

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Read back some columns of the written rows."""

    def commit(self, commit: Commit) -> Version:
        """Make the commit; return the version that it gives the table.

        Raises:
            TransientConsumerError: the table has changed since it was `found`.
        """

    def discard(self) -> None:
        """Remove what was written."""
