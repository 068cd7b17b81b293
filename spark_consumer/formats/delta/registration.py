"""Names of Delta tables in Spark's session catalog, which may be that of a Hive metastore.

The table's log remains what counts: a name only says where it is. It is given once the table is
there, and again where a crash has come in between.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from spark_consumer.errors import SettingsError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.view_sql import text_literal
from spark_consumer.names import quoted

__all__ = ["SESSION_CATALOG", "check_catalog", "register"]

SESSION_CATALOG: Final = "spark_catalog"


def check_catalog(catalog: Catalog) -> None:
    """Check that Delta tables can have names in a catalog.

    Raises:
        SettingsError: they cannot.
    """
    if catalog.name != SESSION_CATALOG:
        raise SettingsError(
            f"Delta tables cannot be in the catalog {catalog.name}, only in {SESSION_CATALOG}",
            hint=f'set consumer.catalog to "{SESSION_CATALOG}", or consumer.catalogs of single'
            " subscriptions",
        )
    if len(catalog.names.split(".")) != 2 or any(
        name.count(".") != 1 for name in catalog.chosen.values()
    ):
        raise SettingsError(
            f"names in {SESSION_CATALOG} are of two parts, a database and a table",
            hint="see consumer.catalog_names and consumer.catalog_tables",
        )


def register(spark: SparkSession, catalog: Catalog, path: str, label: str, *, exists: bool) -> bool:
    """Give a table its name, unless it has it.

    Args:
        spark: Session with Delta as its session catalog.
        catalog: Session catalog, and the names in it.
        path: Folder of the table.
        label: Name of the table in messages.
        exists: Whether there is a table in the folder.

    Returns:
        Whether it has the name.

    Raises:
        TableError: another table has it.
    """
    if _has_name(spark, catalog, path, label):
        return True
    if not exists:
        return False
    database = quoted(catalog.parts(path)[0])
    place = text_literal(_qualified(spark, path), "spark")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {SESSION_CATALOG}.{database}")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {catalog.sql_name(path)} USING delta LOCATION {place}")
    # Another table may have got it meanwhile.
    return _has_name(spark, catalog, path, label)


def _has_name(spark: SparkSession, catalog: Catalog, path: str, label: str) -> bool:
    # The session catalog has names in lower case.
    database, table = (part.lower() for part in catalog.parts(path))
    state: Any = spark._jsparkSession.sessionState()
    known = state.catalog().externalCatalog()
    if not (known.databaseExists(database) and known.tableExists(database, table)):
        return False
    place = known.getTable(database, table).storage().locationUri()
    location = _qualified(spark, place.get()) if place.isDefined() else None
    if location != _qualified(spark, path):
        raise catalog.of_another(label, path, location)
    return True


def _qualified(spark: SparkSession, place: Any) -> str:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    hadoop = spark._jsc.hadoopConfiguration()
    return str(path.getFileSystem(hadoop).makeQualified(path).toString())
