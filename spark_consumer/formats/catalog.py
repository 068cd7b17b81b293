"""Names of rebuilt tables in one of Spark's catalogs.

A table is in its folder, with a catalog or without one, and a name follows from the folder: nobody
has to ask a catalog which tables there are. A catalog of Iceberg's also keeps the pointer to a
table's newest metadata, see `spark_consumer.formats.iceberg.pointers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from schemas.settings.consumer import CATALOG_NAMES
from schemas.topic_names import topic_identifier
from spark_consumer.errors import SettingsError, TableError
from spark_consumer.names import HISTORY, quoted
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.files import Folder
from spark_consumer.spark.tuning import setting

__all__ = ["Catalog", "read_catalog", "write_catalog"]

_KEY: Final = "spark.sql.catalog."
_FILE: Final = "catalog"
_NOT_PLAIN: Final = re.compile("[^a-z0-9_]")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog, and the names that tables have in it.

    Attributes:
        name: Name of the catalog in Spark's settings.
        names: Pattern of the names.
        chosen: Names of single tables, by ``subscription.schema.table``.
        properties: Spark's settings of the catalog, for sessions that do not have it.
    """

    name: str
    names: str = CATALOG_NAMES
    chosen: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, settings: ConsumerSettings, subscription: str) -> Catalog | None:
        """Return the catalog of a subscription's tables; None if they have none.

        Raises:
            SettingsError: two tables in it have the same name.
        """
        name = settings.catalog_of(subscription)
        if name is None:
            return None
        own = {
            key: value
            for key, value in settings.spark.items()
            if key == _KEY + name or key.startswith(f"{_KEY}{name}.")
        }
        alike = (one for one in settings.subscriptions if settings.catalog_of(one) == name)
        inside = tuple(f"{one}." for one in alike)
        chosen = {
            table: chosen_name
            for table, chosen_name in settings.catalog_tables.items()
            if table.startswith(inside)
        }
        seen: dict[str, str] = {}
        for table, chosen_name in chosen.items():
            if (other := seen.setdefault(chosen_name.lower(), table)) != table:
                raise SettingsError(
                    f"consumer.catalog_tables: {other} and {table} have the same name"
                    f" {chosen_name} in the catalog {name}",
                    hint="choose another",
                )
        return cls(name, settings.catalog_names, chosen, own)

    def prepare(self, spark: SparkSession) -> None:
        """Let a session have the catalog.

        Raises:
            SettingsError: nothing says what it is.
        """
        key = _KEY + self.name
        if setting(spark, key) is not None:
            return
        if key not in self.properties:
            raise SettingsError(
                f"Spark has no catalog {self.name}",
                hint=f"describe it by {key} and what belongs to it, in consumer.spark or for"
                " spark-submit: see docs/spark.md, Catalogs",
            )
        # The shortest key last, as its presence says that all are there.
        for each in sorted(self.properties, key=len, reverse=True):
            spark.conf.set(each, self.properties[each])

    def parts(self, path: str) -> tuple[str, ...]:
        """Return namespace and name of the table in a folder."""
        subscription, schema, table = map(topic_identifier, path.rstrip("/").split("/")[-3:])
        base, history = table, ""
        if f"{subscription}.{schema}.{table}" not in self.chosen and table.endswith(HISTORY):
            base, history = table.removesuffix(HISTORY), HISTORY
        chosen = self.chosen.get(f"{subscription}.{schema}.{base}")
        if chosen is not None:
            return tuple((chosen + history).split("."))
        given = {"subscription": subscription, "schema": schema, "table": base + history}
        plain = {key: _NOT_PLAIN.sub("_", text.lower()) for key, text in given.items()}
        return tuple(self.names.format(**plain).split("."))

    def sql_name(self, path: str) -> str:
        """Return the name of the table in a folder, as SQL has it."""
        return ".".join(map(quoted, (self.name, *self.parts(path))))

    def shown(self, path: str) -> str:
        """Return the name of the table in a folder, for people."""
        return ".".join((self.name, *self.parts(path)))

    def of_another(self, label: str, path: str, location: str | None) -> TableError:
        """Return the error for a name that something else has.

        Args:
            label: Name of the table in messages.
            path: Folder of the table.
            location: Folder of what has the name; None for a view, or if it is not known.
        """
        what = "something else" if location is None else f"the table in {location}"
        return TableError(
            f"{label}: its name {self.shown(path)} is that of {what}",
            hint="give it another one in consumer.catalog_tables, or rename what has it",
        )


def write_catalog(folder: Folder, catalog: Catalog | None) -> None:
    """Store for readers by which names a subscription's tables are found.

    Args:
        folder: Folder of the subscription's manifests.
        catalog: Catalog of its tables; None if they have none.

    Raises:
        TransientConsumerError: the file system fails.
    """
    if read_catalog(folder) == catalog:
        return
    if catalog is None:
        folder.remove(_FILE)
        return
    known = {"name": catalog.name, "names": catalog.names, "chosen": dict(catalog.chosen)}
    folder.publish(_FILE, json.dumps(known))


def read_catalog(folder: Folder) -> Catalog | None:
    """Return the catalog of a subscription's tables; None if they have none.

    Raises:
        TransientConsumerError: the file system fails.
    """
    text = folder.read(_FILE)
    return None if text is None else Catalog(**json.loads(text))
