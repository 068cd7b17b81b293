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

*Nobody else writes.* `Table.find` refuses a table whose rows somebody else has changed.

*Versions stay readable* until `Table.vacuum` says otherwise: a version that `keep_hours` covers can
be read, however many there have been since.

Rows are DataFrames of the session that the table was opened with. Columns have the names of the
source's, which are any text; a format whose files cannot have such names maps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from spark_consumer.formats.changes import KeyedChanges, ValueChanges
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found, Version
from spark_consumer.formats.schema_evolution import Step
from spark_consumer.kafka.position import Position

__all__ = ["Draft", "Table", "TableFormat"]


class TableFormat(Protocol):
    """Opens the tables of one format."""

    @property
    def name(self) -> str:
        """How messages call the format."""

    @property
    def reserved(self) -> frozenset[str]:
        """Names of folders that the format has beside a table's data; no table may have them."""

    def prepare(self, spark: SparkSession) -> None:
        """Give a session the settings that reading and writing tables exactly need."""

    def table(self, spark: SparkSession, path: str, label: str) -> Table:
        """A table, whether it exists yet or not.

        Args:
            spark: a session that is used for nothing else meanwhile; it is prepared.
            path: the table's folder, of any Hadoop file system.
            label: how messages call it: ``subscription s1, table public.t1``.
        """

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        """The rows of a table at a version, however old, as long as its files exist."""


class Table(Protocol):
    """One subscriber table."""

    @property
    def spark(self) -> SparkSession:
        """The session that it was opened with."""

    @property
    def path(self) -> str:
        """The table's folder."""

    @property
    def label(self) -> str:
        """How messages call it."""

    # Inspection. Cheap: no Spark job is run if the format can answer without one.

    def version(self) -> Version:
        """The newest version; `NO_VERSION` when there is no table."""

    def find(self, trusted: Version = NO_VERSION) -> Found | None:
        """The table with its position; None when there is no table.

        Args:
            trusted: a version until which the table is known to have only commits of this job.

        Raises:
            TableError: somebody else has changed the rows, or the history does not go back to a
                commit of this job.
        """

    def position_at(self, version: Version) -> Position:
        """The table's position at a version, whoever has committed since.

        Raises:
            TableError: the history does not go back so far.
        """

    def rows(self) -> DataFrame:
        """The rows of the newest version."""

    def fields(self) -> list[StructField]:
        """The columns, in their order."""

    def bytes(self) -> int | None:
        """Size of the rows' files in bytes; None when that is not at hand."""

    def files(self) -> int | None:
        """Number of the rows' files; None when that is not at hand."""

    def tracks_rows(self) -> bool:
        """Whether readers learn which rows change, as by a change data feed.

        Then a write touches the rows that change and no others.
        """

    # Column statistics, where a format has them: they save time, and decide nothing.

    def excludes(self, condition: str) -> bool:
        """Whether statistics alone show that no row meets a condition on the columns, as `t`."""

    def greatest(self, names: Sequence[str]) -> Mapping[str, int]:
        """By integer column, a bound that no value exceeds; columns without one are left out."""

    # Writes. Each makes one commit; see the rules above for `found` and what is raised.

    def write(
        self, rows: DataFrame, commit: Commit, found: Found | None, *, empty: bool, recreate: bool
    ) -> None:
        """Append rows; or replace all rows, as TRUNCATE or a new copy does.

        Args:
            rows: in the table's columns and their order; with `recreate` in any. A column's comment
                is its PostgreSQL type.
            commit: metadata of the commit.
            found: the table as it was read; None is for `empty` alone: what is there does not
                matter.
            empty: the rows that are there go.
            recreate: whether, with `empty`, the table's columns become those of `rows`, and a table
                that does not exist is created.

        Raises:
            TransientConsumerError: the table has changed meanwhile, and nothing was written.
        """

    def stage(
        self, rows: DataFrame, found: Found | None, *, empty: bool, recreate: bool
    ) -> Draft | None:
        """Do the work of `write`, and leave the commit to the caller.

        Returns:
            None when the format cannot: nothing was done, and `rows` has not been run.
        """

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        """Apply changes of rows that are identified by a key: see `KeyedChanges`.

        Returns:
            Number of outcomes that need a row and have found none.

        Raises:
            TransientConsumerError: as for `write`.
        """

    def exchange(self, changes: ValueChanges, commit: Commit, found: Found | None) -> None:
        """Apply changes of rows that are identified by their values: see `ValueChanges`.

        Raises:
            TransientConsumerError: as for `write`.
        """

    def alter(self, steps: Iterable[Step]) -> None:
        """Bring the columns to where `steps` lead; may be repeated after it ended early.

        It makes any number of commits, none of which moves the position.

        Raises:
            TableError: a value that rows have in a new column cannot be read.
        """

    # Maintenance, between two cuts.

    def keep_history(self, hours: float) -> None:
        """Keep files and history of replaced versions for a number of hours."""

    def compact(self, commit: Commit, *, small: int) -> None:
        """Merge files of less than `small` bytes; the rows stay, and so does their position.

        Args:
            commit: metadata of the job's last commit, which the new version carries, too.
            small: in bytes.
        """

    def vacuum(self, hours: float) -> None:
        """Remove files that no version has that was the newest within the last hours."""


class Draft(Protocol):
    """Rows that are written and not committed: nobody sees them."""

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Some columns of what was written, read back."""

    def commit(self, commit: Commit) -> Version:
        """Make the commit; the table's version then.

        Raises:
            TransientConsumerError: the table has changed since it was `found`.
        """

    def discard(self) -> None:
        """Remove what was written."""
