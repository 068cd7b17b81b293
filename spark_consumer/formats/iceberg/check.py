"""Check of the Iceberg that a session has, and of the file system that its tables are on."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_consumer.errors import SettingsError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.iceberg.pointers import iceberg_catalog, no_answer
from spark_consumer.spark.files import RENAMING

__all__ = ["check_catalog", "check_iceberg"]

_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_LEAST: Final = (1, 12)
_NOWHERE: Final = ("pgsluice", "no_table")
_HINT: Final = "see docs/spark.md, Iceberg"


def check_iceberg(spark: SparkSession, warehouse: str) -> None:
    """Check that a session can have Iceberg tables in a warehouse.

    Raises:
        SettingsError: the jar is missing or too old, the file system has no atomic rename, or
            Iceberg cannot read tables at such a path.
    """
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(_CATALOG, False, False)
    except Py4JError:
        raise SettingsError(
            f"Spark has no class {_CATALOG}: Iceberg's jar is missing", hint=_HINT
        ) from None
    version = str(jvm.org.apache.iceberg.IcebergBuild.version())
    if _numbers(version) < _LEAST:
        least = ".".join(map(str, _LEAST))
        raise SettingsError(f"this is Iceberg {version}, not {least} or later", hint=_HINT)
    path = jvm.org.apache.hadoop.fs.Path(warehouse)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    scheme = str(files.getUri().getScheme())
    if scheme not in RENAMING:
        raise SettingsError(
            f"Iceberg tables cannot be in a warehouse at {scheme}: a commit is a rename of a file,"
            " which is not one step there",
            hint='use a local disk or HDFS, or format = "delta"',
        )
    # The rest of the path would be taken for the name of a table of metadata.
    if "#" in str(files.makeQualified(path).toString()):
        raise SettingsError(
            "Iceberg tables cannot be in a warehouse with # in its path: Iceberg cannot read them",
            hint='use another folder, or format = "delta"',
        )


def check_catalog(spark: SparkSession, catalog: Catalog) -> None:
    """Check that a session can have a catalog, and that its server answers.

    Raises:
        SettingsError: there is no such catalog, its settings are wrong, or it is not one of
            Iceberg's.
        TransientConsumerError: it does not answer.
    """
    session = spark.newSession()
    catalog.prepare(session)
    known = iceberg_catalog(session, catalog.name)
    jvm: Any = spark._jvm
    nowhere = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(".".join(_NOWHERE))
    try:
        known.tableExists(nowhere)
    except Py4JJavaError as error:
        raise no_answer(catalog.name, error) from error


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
