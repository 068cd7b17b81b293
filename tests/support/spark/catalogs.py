"""An Iceberg catalog in a database of PostgreSQL, and sessions that have it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.backends.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LAKE", "jdbc_catalog", "with_catalog"]

LAKE = "lake"
"""Name of the catalog."""


def jdbc_catalog(database: Database, folder: Path) -> dict[str, str]:
    """The properties of a catalog in a database, as Spark has them."""
    with database.connect() as connection:
        server = connection.info
        address = f"jdbc:postgresql://{server.host}:{server.port}/{database.name}"
        properties = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": address,
            ".jdbc.user": server.user,
            ".jdbc.password": server.password,
            ".jdbc.schema-version": "V1",
            ".warehouse": str(folder),
        }
    return {f"spark.sql.catalog.{LAKE}{key}": value for key, value in properties.items()}


def with_catalog(spark: SparkSession, properties: dict[str, str]) -> SparkSession:
    """A session of a reader who knows the catalog."""
    session = spark.newSession()
    for key, value in properties.items():
        session.conf.set(key, value)
    return session
