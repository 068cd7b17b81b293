"""Settings of a session that reads and writes Iceberg tables exactly, and its catalogs."""

from __future__ import annotations

import hashlib
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.spark.tuning import setting
from spark_consumer.values.variants import VARIANT_SETTINGS

__all__ = ["SESSION_SETTINGS", "catalog_of", "use_paths"]

SESSION_SETTINGS: Final = {
    **VARIANT_SETTINGS,
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise a column called ${env:SECRET} is replaced by the driver's environment variable.
    "spark.sql.variable.substitute": "false",
    # Conditions pass through java.sql's types otherwise, which do not hold infinity.
    "spark.sql.datetime.java8API.enabled": "true",
}

_CATALOG: Final = "spark.sql.catalog."
_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_OF_PATHS: Final = "default_iceberg"
"""The catalog by which Iceberg opens a table at a path; by default it asks a Hive metastore."""


def use_paths(spark: SparkSession) -> None:
    """Let a session open tables at paths, unless its user has chosen how."""
    if setting(spark, _CATALOG + _OF_PATHS) is None:
        _define(spark, _OF_PATHS, "/unused")


def catalog_of(spark: SparkSession, folder: str) -> str:
    """Return the name of a catalog of the session whose tables are the folders below a folder."""
    name = f"pgsluice_{hashlib.sha256(folder.encode()).hexdigest()[:16]}"
    if setting(spark, _CATALOG + name) is None:
        _define(spark, name, folder)
    return name


def _define(spark: SparkSession, name: str, folder: str) -> None:
    options = {"type": "hadoop", "warehouse": folder, "cache-enabled": "false"}
    for key, value in options.items():
        spark.conf.set(f"{_CATALOG}{name}.{key}", value)
    spark.conf.set(_CATALOG + name, _CLASS)
