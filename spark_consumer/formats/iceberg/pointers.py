"""Pointers to the newest metadata of a table: the folder's own, or the one that a catalog keeps.

In a folder the newest file of metadata is found by its number, and a commit is the rename of the
next one. A catalog keeps the file's name and replaces it, if it is still the one that was read:
that takes no rename, but whoever reads the folder without the catalog does not find the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Protocol

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_consumer.errors import SettingsError, TableError, TransientConsumerError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.names import quoted
from spark_consumer.spark.files import Folder

__all__ = [
    "CatalogPointer",
    "FolderPointer",
    "Pointer",
    "has_metadata",
    "iceberg_catalog",
    "no_answer",
]

_OF_FOLDERS: Final = re.compile(r"v\d+(\.gz)?\.metadata\.json(\.gz)?")
_OF_CATALOGS: Final = re.compile(r"\d+-.+\.metadata\.json")
_LATER: Final = re.compile(r"0*[1-9]\d*-.+\.metadata\.json")
"""Not that of a table's first commit: a crash can leave one before the catalog has the table."""
_FIRST: Final = re.compile(r"0+-[^.]+\.metadata\.json")
_OWN_NAME: Final = "pgsluice.table"
"""Property of a table: its name when it was created, by which that of a crash is known."""

_EXCEPTIONS: Final = "org.apache.iceberg.exceptions."
_ABSENT: Final = (_EXCEPTIONS + "NoSuchTableException", _EXCEPTIONS + "NoSuchNamespaceException")
_OTHER_KIND: Final = _EXCEPTIONS + "NoSuchIcebergTableException"
_NO_ANSWER: Final = (
    _EXCEPTIONS + "NotAuthorizedException",
    _EXCEPTIONS + "RESTException",
    _EXCEPTIONS + "ServiceFailureException",
    _EXCEPTIONS + "ServiceUnavailableException",
    "org.apache.iceberg.jdbc.UncheckedSQLException",
    "org.apache.iceberg.hive.RuntimeMetaException",
)
_UNMADE: Final = (
    "java.lang.IllegalArgumentException",
    "java.lang.LinkageError",
    "java.lang.NullPointerException",
    "java.lang.UnsupportedOperationException",
    "org.apache.spark.SparkException",
)
"""Errors of a catalog whose class or properties are wrong."""


class Pointer(Protocol):
    """Place of the newest metadata of one table."""

    @property
    def name(self) -> str:
        """Name of the table for Spark's reader of Iceberg."""

    def load(self, label: str) -> Any | None:
        """Return Iceberg's own object for the newest state; None if there is no table.

        Args:
            label: Name of the table in messages.

        Raises:
            TableError: something else is there.
            TransientConsumerError: the catalog does not answer.
        """

    def creation(self, schema: Any, properties: dict[str, str]) -> Any:
        """Return Iceberg's transaction that creates the table."""

    def elsewhere(self, label: str, location: str) -> TableError:
        """Return the error for metadata that are of a table in another folder."""


class FolderPointer:
    """The pointer of a table that is found by its folder.

    Args:
        spark: Any session of the application.
        path: Folder of the table.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self.name = path
        self._spark = spark
        self._iceberg = jvm.org.apache.iceberg
        self._tables = self._iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())

    def load(self, label: str) -> Any | None:
        """See `Pointer`."""
        try:
            return self._tables.load(self.name)
        except Py4JJavaError as error:
            if not _is(self._spark, error, _ABSENT):
                raise
        if _has_file(self._spark, self.name, _OF_CATALOGS):
            raise TableError(
                f"{label}: its folder has an Iceberg table of a catalog",
                hint="set consumer.catalog as it was, or move the folder away and copy the table",
            )
        return None

    def creation(self, schema: Any, properties: dict[str, str]) -> Any:
        """See `Pointer`."""
        none = self._iceberg.PartitionSpec.unpartitioned()
        return self._tables.newCreateTableTransaction(self.name, schema, none, properties)

    def elsewhere(self, label: str, location: str) -> TableError:
        """See `Pointer`."""
        return TableError(
            f"{label}: the folder {self.name} has the metadata of the Iceberg table in {location}",
            hint="such a table cannot be copied or moved as a folder: start with an empty "
            "warehouse",
        )


class CatalogPointer:
    """The pointer of a table that a catalog has.

    Args:
        spark: Session that has the catalog.
        path: Folder of the table.
        catalog: Catalog with the names of tables.
    """

    def __init__(self, spark: SparkSession, path: str, catalog: Catalog) -> None:
        jvm: Any = spark._jvm
        self.name = catalog.sql_name(path)
        self._spark = spark
        self._path = path
        self._catalog = catalog
        self._known = iceberg_catalog(spark, catalog.name)
        parts = catalog.parts(path)
        self._namespace = parts[:-1]
        self._identifier = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(".".join(parts))

    def load(self, label: str) -> Any | None:
        """See `Pointer`."""
        try:
            # Spark may remember the table as it was.
            self._known.invalidateTable(self._identifier)
            return self._known.loadTable(self._identifier)
        except Py4JJavaError as error:
            if _is(self._spark, error, [_OTHER_KIND]):
                raise self._catalog.of_another(label, self._path, None) from error
            if str(error.java_exception.getClass().getName()) in _NO_ANSWER:
                raise no_answer(self._catalog.name, error) from error
            if not _is(self._spark, error, _ABSENT):
                raise
        if has_metadata(self._spark, self._path) or self._has_first_of_another():
            shown = self._catalog.shown(self._path)
            raise TableError(
                f"{label}: its folder has an Iceberg table, and the catalog has no {shown}",
                hint="set consumer.catalog and its names as they were, or move the folder away and"
                " copy the table",
            )
        return None

    def creation(self, schema: Any, properties: dict[str, str]) -> Any:
        """See `Pointer`."""
        namespace = ".".join(map(quoted, (self._catalog.name, *self._namespace)))
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        own = {**properties, _OWN_NAME: self._catalog.shown(self._path)}
        builder = self._known.buildTable(self._identifier, schema)
        return builder.withLocation(self._path).withProperties(own).createTransaction()

    def _has_first_of_another(self) -> bool:
        """Whether the folder has the first metadata of a table that was created by another name."""
        folder = Folder(self._spark, f"{self._path}/metadata")
        found = filter(_FIRST.fullmatch, folder.names()) if folder.has() else ()
        texts = filter(None, map(folder.read, found))
        names = (json.loads(text)["properties"].get(_OWN_NAME) for text in texts)
        return any(name != self._catalog.shown(self._path) for name in names)

    def elsewhere(self, label: str, location: str) -> TableError:
        """See `Pointer`."""
        return self._catalog.of_another(label, self._path, location)


def iceberg_catalog(spark: SparkSession, name: str) -> Any:
    """Return Iceberg's own object for a catalog of a session.

    Raises:
        SettingsError: the catalog cannot be made by its settings, or is not one of Iceberg's.
        TransientConsumerError: it does not answer.
    """
    jvm: Any = spark._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    session = spark._jsparkSession
    before = sessions.getActiveSession()
    # Spark makes a catalog by the settings of the thread's session, whosever catalog it is.
    sessions.setActiveSession(session)
    try:
        return session.sessionState().catalogManager().catalog(name).icebergCatalog()
    except (PySparkException, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and not _is(spark, error, _UNMADE):
            raise no_answer(name, error) from error
        raise SettingsError(
            f"Spark cannot make the catalog {name} by its settings",
            hint=f"compare those of spark.sql.catalog.{name} with docs/spark.md, Catalogs; are its"
            " jars there?",
        ) from error
    except Py4JError as error:
        if "Method icebergCatalog" not in str(error):
            raise  # Spark has ended
        raise SettingsError(
            f"the catalog {name} of Spark is not one of Iceberg's",
            hint="name one in consumer.catalog or consumer.catalogs: see docs/spark.md, Catalogs",
        ) from error
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def no_answer(name: str, error: Py4JJavaError) -> TransientConsumerError:
    """Return the error for a catalog that does not answer; its own text may have credentials."""
    kind = error.java_exception.getClass().getSimpleName()
    return TransientConsumerError(
        f"the catalog {name} does not answer ({kind})",
        hint="is its server running, and has Spark the driver of its address?",
    )


def has_metadata(spark: SparkSession, path: str) -> bool:
    """Whether a folder has the metadata of a table, whatever points to them."""
    if Folder(spark, f"{path}/metadata").has("version-hint.text"):
        return True
    # A commit removes the hint for a moment. The jar may be missing where this is asked.
    return _has_file(spark, path, _OF_FOLDERS) or _has_file(spark, path, _LATER)


def _has_file(spark: SparkSession, path: str, pattern: re.Pattern[str]) -> bool:
    folder = Folder(spark, f"{path}/metadata")
    return folder.has() and any(map(pattern.fullmatch, folder.names()))


def _is(spark: SparkSession, error: Py4JJavaError, names: Iterable[str]) -> bool:
    gateway: Any = spark.sparkContext._gateway
    return any(is_instance_of(gateway, error.java_exception, name) for name in names)
