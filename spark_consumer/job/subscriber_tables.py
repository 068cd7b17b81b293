"""Tables of one subscription: their folders, versions and positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from schemas.table_names import quoted_name
from schemas.topic_names import topic_identifier
from spark_consumer.display import as_word, logger
from spark_consumer.errors import COPY_AGAIN, ConsumerError, TableError
from spark_consumer.formats.choice import format_at
from spark_consumer.formats.commit_metadata import NO_VERSION, Found, Version
from spark_consumer.formats.protocol import Table, TableFormat
from spark_consumer.names import HISTORY, table_folder
from spark_consumer.spark.failures import TableTransientError, as_error, every_table
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import Hold, manifest_folder

__all__ = ["SubscriberTables"]

_log: Final = logger(__name__)
_PROBE: Final = "probe"


class SubscriberTables:
    """Tables of one subscription, with a cache of their states.

    Args:
        spark: Session to inspect tables with.
        table_format: Format of the tables.
        warehouse: Folder of all tables.
        subscription: Name of the subscription.

    Attributes:
        names: Table by the topic that feeds it.
        found: Last known state by table.
    """

    def __init__(
        self, spark: SparkSession, table_format: TableFormat, warehouse: str, subscription: str
    ) -> None:
        self._spark = spark
        self._format = table_format
        self._warehouse = warehouse
        self._subscription = subscription
        self.names: dict[str, str] = {}
        self.found: dict[str, Found] = {}
        self._registered: set[str] = set()
        self._unregistered: dict[str, str] = {}
        """Reasons for which tables lack their names in the catalog, as the log has them."""

    def find(self, name: str, trusted: Version = NO_VERSION) -> Found | None:
        """Return a table's version and last commit, as a commit on top of it would confirm them.

        Args:
            name: ``schema.table``.
            trusted: Version until which only this job has written.

        Returns:
            None if the table does not exist.

        Raises:
            TableError: its position cannot be trusted.
        """
        known = self.found.get(name)
        if known is None:
            return self.read(name, trusted)
        table = self.table(self._spark, name)
        believed = table.believed()
        if known.version == (table.version() if believed is None else believed):
            return known
        return self.read(name, known.version)

    def read(self, name: str, trusted: Version = NO_VERSION) -> Found | None:
        """Return what `find` does, from the table's history, whatever this process remembers.

        Raises:
            TableError: its position cannot be trusted.
        """
        table = self.table(self._spark, name)
        found = table.find(trusted)
        if found is not None:
            self.found[name] = found
            return found
        self.refuse_other_format(table)
        return None

    def refuse_other_format(self, table: Table) -> None:
        """Refuse a folder that has a table of another format.

        Raises:
            TableError: it has one.
        """
        other = format_at(self._spark, table.path)
        if other is not None and other.name != self._format.name:
            raise TableError(
                f"{table.label}: its folder has a table of the format {other.name}, not"
                f" {self._format.name}",
                hint="see consumer.format: another format needs another warehouse",
            )

    def rows_at(self, spark: SparkSession, name: str, version: Version) -> DataFrame:
        """Return the rows of a table at a version."""
        path = table_folder(self._warehouse, self._subscription, name)
        return self._format.rows_at(spark, path, version)

    def unchanged_since(self, spark: SparkSession, name: str, version: Version) -> Version | None:
        """Return a table's newest version, if it has the rows of an earlier one.

        Args:
            spark: Session to inspect the table with.
            name: ``schema.table``.
            version: Version that was the newest once.

        Returns:
            None if its position or its columns are others, or if `version` is still to come.

        Raises:
            TableError: its position cannot be trusted, or `version` cannot be read any more.
        """
        found = self.read(name, version)
        if found is None or found.version < version:
            return None
        if found.version > version:
            table = self.table(spark, name)
            if table.position_at(version) != found.commit.position:
                return None
            # A step of the schema evolution is a commit at the position that the table has.
            at = (self._format.rows_at(spark, table.path, one) for one in (version, found.version))
            if len({rows.schema.json() for rows in at}) > 1:
                return None
        return found.version

    def table(self, spark: SparkSession, name: str) -> Table:
        """Open a table in a session."""
        path = table_folder(self._warehouse, self._subscription, name)
        return self._format.table(spark, path, self.label(name))

    def twin(self, name: str) -> str | None:
        """Return the table that shares this one's folder; None if it has one of its own.

        Their names differ by case alone, and the file system does not distinguish them.

        Raises:
            TableError: the table's position cannot be trusted.
            TransientConsumerError: the file system fails.
        """
        alike = {one for one in self.names.values() if one != name and one.lower() == name.lower()}
        if not alike:
            return None
        found = self.find(name)
        if found is not None:
            owner = self.names.get(found.commit.position.topic, name)
            return owner if owner in alike else None
        return min(alike) if self._is_blind_to_case() else None

    def _is_blind_to_case(self) -> bool:
        folder = Folder(self._spark, manifest_folder(self._warehouse, self._subscription))
        folder.write(_PROBE, "")
        try:
            return folder.time(_PROBE.upper()) is not None
        finally:
            folder.remove(_PROBE)

    def register(self, names: Iterable[str]) -> None:
        """Give tables their names in the catalog, if there is one, as far as they lack them.

        The tables themselves are complete without: a failure is logged, and the next cut tries
        again.

        Raises:
            TransientConsumerError: it concerns every table.
        """
        for name in names:
            if name in self._registered:
                continue
            try:
                registered = self._register(name)
            except Exception as error:  # whatever it is, it is this table's
                if (every := every_table(error)) is not None:
                    raise every from error
                why = as_error(self.label(name), error)
                if self._unregistered.get(name) != why.message:
                    self._unregistered[name] = why.message
                    _log.warning(
                        "table without its name in the catalog: %s\nhint: %s",
                        why.message,
                        why.hint,
                    )
                continue
            if registered:
                self._registered.add(name)
            self._unregistered.pop(name, None)

    def _register(self, name: str) -> bool:
        path = table_folder(self._warehouse, self._subscription, name)
        return self._format.register(self._spark, path, self.label(name))

    def check_name(self, name: str) -> None:
        """Refuse a table whose folder is reserved by the format, or has a history.

        A table whose name in the catalog another one has is refused, too.

        Raises:
            TableError: it is, or has; the message says which.
        """
        for reserved in self._format.reserved.intersection(name.split(".")):
            raise TableError(
                f"{self.label(name)}: {self._format.name} reserves folders called {reserved}",
                hint="rename it, or leave it out of the publications",
            )
        if name.endswith(HISTORY) and self._has_history(name):
            raise TableError(
                f"{self.label(name)}: its folder has the history of table"
                f" {topic_identifier(name.removesuffix(HISTORY))}",
                hint="rename it, or move that folder away once the history is not written any more",
            )
        if name not in self._registered:
            try:
                self._register(name)
            except (PySparkException, Py4JError) as error:
                if (every := every_table(error)) is not None:
                    raise every from error
                # The catalog does not answer, and the table can do without: see `register`.

    def _has_history(self, name: str) -> bool:
        try:
            table = self.table(self._spark, name)
            found = self.found.get(name) or table.find(table.version())
        except TableError:
            return False
        return found is not None and found.commit.history

    def label(self, name: str) -> str:
        """Return the name of a table in messages."""
        return f"subscription {self._subscription}, table {name}"

    def failed(self, name: str, error: Exception, *, last: bool) -> Hold:
        """Return the hold for a table whose application failed, whatever the error is.

        Args:
            name: ``schema.table``.
            error: Any exception; see `as_error`.
            last: Whether there is no further attempt.

        Raises:
            TableTransientError: it may pass, and there is a further attempt.
        """
        known = as_error(self.label(name), error)
        if isinstance(known, TableTransientError) and not last:
            raise known from error
        if known is not error:
            _log.debug("%s", name, exc_info=error)
        return self.hold(name, known)

    def hold(self, name: str, error: ConsumerError) -> Hold:
        """Return the hold for a table; if a copy helps, with the command that requests it."""
        known = self.found.get(name)
        end_lsn = known.commit.position.end_lsn if known is not None else None
        hint = error.hint
        # A table that is only known by its topic has no name yet.
        if name in self.names.values():
            hint = self.with_copy_command(hint, name)
        return Hold(error.message, hint, end_lsn)

    def with_copy_command(self, hint: str | None, name: str) -> str | None:
        """Return a hint with the command that copies a table, where it says to copy it."""
        if hint is None:
            return None
        parts = map(topic_identifier, name.split("."))
        table, subscription = as_word(quoted_name(parts)), as_word(self._subscription)
        command = f"{COPY_AGAIN} (pgsluice copy {table} --subscription {subscription})"
        return hint.replace(COPY_AGAIN, command)
