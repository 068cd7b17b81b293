"""Views of all tables and histories of a subscription at one state: a file of SQL for each engine.

``<warehouse>/<subscription>/views.spark.sql`` and ``views.duckdb.sql`` define a view for each table
that shows it at the version that the newest manifest names. Tables are committed one after the
other, but a file is replaced as a whole, after the manifest of each cut. Whoever runs a file reads
all tables at one state, for as long as the versions are kept: until `keep_hours` after the file was
replaced, as maintenance removes nothing that a kept state needs.

A view is called ``<subscription>.<schema>.<table>``, each part as in names of folders: in DuckDB a
database, a schema and a view; in Spark one name, since temporary views have no schemas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, get_args

from pyspark.sql import SparkSession

from schemas.settings.consumer import ViewEngine
from schemas.topic_names import topic_part
from spark_consumer.display import logger
from spark_consumer.errors import ConsumerError
from spark_consumer.formats.commit_metadata import NO_VERSION, Version
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.formats.view_sql import ViewPlace, check_name, engine_path, identifier
from spark_consumer.names import history_name, lsn_text, table_folder
from spark_consumer.spark.failures import cause, every_table
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import Manifest, TableState

__all__ = ["Views", "view_file"]

_log: Final = logger(__name__)


def view_file(engine: ViewEngine) -> str:
    """Return the name of an engine's file; no schema's folder has one with a point."""
    return f"views.{engine}.sql"


class Views:
    """Files of views of one subscription.

    Args:
        spark: Session to inspect tables with.
        table_format: Format of the tables.
        warehouse: Folder of all tables.
        subscription: Name of the subscription.
        engines: Engines that get a file.

    Raises:
        SettingsError: an engine cannot read the tables; says why.
        TransientConsumerError: the file system fails.
    """

    def __init__(
        self,
        spark: SparkSession,
        table_format: TableFormat,
        warehouse: str,
        subscription: str,
        engines: Sequence[ViewEngine],
    ) -> None:
        self._spark = spark
        self._format = table_format
        self._warehouse = warehouse
        self._subscription = subscription
        self._folder = Folder(spark, f"{warehouse.rstrip('/')}/{topic_part(subscription)}")
        for engine in engines:
            check_name(subscription, engine)
        above = Folder(spark, warehouse).qualified()
        self._above = {engine: engine_path(above, engine) for engine in dict.fromkeys(engines)}
        self._settings = {
            engine: table_format.view_settings(folder, engine)
            for engine, folder in self._above.items()
        }
        self._written: dict[ViewEngine, str] = {}
        self._pinned: dict[str, tuple[Version, str]] = {}
        self._alike: frozenset[str] = frozenset()

    def clear(self) -> None:
        """Remove the files of engines that are not wanted: they would not be replaced any more.

        Raises:
            TransientConsumerError: the file system fails.
        """
        for engine in get_args(ViewEngine):
            if engine not in self._above:
                self._folder.remove(view_file(engine))

    def publish(self, manifest: Manifest) -> None:
        """Replace the files by those of a state, where they differ.

        Args:
            manifest: Newest state, after it was stored.

        Raises:
            TransientConsumerError: the file system fails.
        """
        if not self._above or not manifest.store:
            return
        manifest = replace(manifest, tables=manifest.every_table())
        self._pinned = self._pin(manifest)
        for engine in self._above:
            text = "".join(f"{line}\n" for line in self._lines(manifest, engine))
            if self._written.get(engine) != text:
                self._folder.publish(view_file(engine), text)
                self._written[engine] = text

    def _lines(self, manifest: Manifest, engine: ViewEngine) -> Iterator[str]:
        yield f"-- Tables of the subscription {topic_part(self._subscription)}, all as they were at"
        yield f"-- {lsn_text(manifest.since_lsn)}. Each cut of the Spark job replaces this file."
        for name, why in _incomplete(manifest):
            yield f"-- Incomplete: {name}, {why}."
        yield from (f"{statement};" for statement in self._settings[engine])
        yield from (f"{statement};" for statement in self._statements(manifest, engine))

    def _statements(self, manifest: Manifest, engine: ViewEngine) -> Iterator[str]:
        if engine == "duckdb":
            database = identifier(topic_part(self._subscription), engine)
            yield f"ATTACH IF NOT EXISTS ':memory:' AS {database}"
            for schema in sorted({name.split(".")[0] for name in manifest.tables}):
                yield f"CREATE SCHEMA IF NOT EXISTS {database}.{identifier(schema, engine)}"
            yield "BEGIN"
        temporary = "TEMPORARY " if engine == "spark" else ""
        for name in sorted(manifest.tables):
            view = self._view_name(name, engine)
            if name not in self._pinned:
                yield f"DROP VIEW IF EXISTS {view}"
                continue
            path = table_folder(self._above[engine], self._subscription, name)
            shown = self._format.view(ViewPlace(engine, path), self._pinned[name][1])
            yield f"CREATE OR REPLACE {temporary}VIEW {view} {shown}"
        if engine == "duckdb":
            yield "COMMIT"

    def _view_name(self, name: str, engine: ViewEngine) -> str:
        parts = [topic_part(self._subscription), *name.split(".")]
        if engine == "spark":
            return identifier(".".join(parts), engine)
        return ".".join(identifier(one, engine) for one in parts)

    def _pin(self, manifest: Manifest) -> dict[str, tuple[Version, str]]:
        """Return the versions of tables that have a view, also as engines call them."""
        alike = _alike(manifest)
        for name in sorted(alike - self._alike):
            _log.warning(
                "table without a view: subscription=%s table=%s: another one's name differs in"
                " case alone",
                self._subscription,
                name,
            )
        self._alike = alike
        held = {history_name(name) for name, one in manifest.histories.items() if one.held}
        pinned = {}
        for name, state in manifest.tables.items():
            known = self._pinned.get(name)
            if name in alike:
                continue
            # What others have done to a table shows at the job's start, or when it is held.
            doubtful = known is None or name in manifest.held_by_job or name in held
            if doubtful or known is None or known[0] != state.version:
                known = self._found(name, state, doubtful=doubtful)
            if known is not None:
                pinned[name] = known
        return pinned

    def _found(self, name: str, state: TableState, *, doubtful: bool) -> tuple[Version, str] | None:
        """Return a table's version, also as engines call it; None if it is not there.

        An engine stops at the first statement that fails, and the others' views would be missing.
        """
        path = table_folder(self._warehouse, self._subscription, name)
        try:
            table = self._format.table(self._spark, path, name)
            if not doubtful or table.version() >= state.version:
                called = self._format.engine_version(self._spark, path, state.version)
                return state.version, called
            why = "it is not there, or was restored to an older version"
        except Exception as error:  # whatever it is, it is this table's
            if not isinstance(error, ConsumerError) and (every := every_table(error)):
                raise every from error
            why = cause(error)
        _log.warning(
            "table without a view: subscription=%s table=%s: %s", self._subscription, name, why
        )
        return None


def _alike(manifest: Manifest) -> frozenset[str]:
    """Return tables whose names differ in case alone, which neither engine distinguishes."""
    count = Counter(name.lower() for name in manifest.tables)
    return frozenset(name for name in manifest.tables if count[name.lower()] > 1)


def _incomplete(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield tables that lack rows of the state, and why; nothing of it comes from elsewhere."""
    for name in sorted(manifest.tables):
        if name in manifest.held_by_job:
            yield name, "held by the job"
        elif name in manifest.held_by_gateway:
            yield name, "held by the gateway"
        elif manifest.copies.get(name, "ready") != "ready":
            yield name, "being copied"
    for name, one in sorted(manifest.histories.items()):
        if one.version != NO_VERSION and one.end_lsn < manifest.since_lsn:
            yield history_name(name), f"complete until {lsn_text(one.end_lsn)}"
