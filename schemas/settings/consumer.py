"""Settings of the Spark job.

The string below a field is its line in the reference of docs/operations.md, in Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from schemas.settings.fields import Rule, address

TableFormatName: TypeAlias = Literal["delta", "iceberg"]
"""Format of the tables that the Spark job rebuilds."""

ViewEngine: TypeAlias = Literal["spark", "duckdb"]
"""Program that reads the rebuilt tables through views."""

Readers: TypeAlias = Literal["current", "widest"]
"""Readers that the tables are made for."""


JsonMode: TypeAlias = Literal["text", "variant"]
"""Type of the columns of the rebuilt tables that are json or jsonb in PostgreSQL."""


def _tables(value: tuple[str, ...]) -> None:
    for name in value:
        if "." not in name:
            raise ValueError(f"{name!r} does not name a table", "it is schema.table")


CATALOG_NAMES: Final = "{subscription}.{schema}_{table}"
"""Names of rebuilt tables in a catalog, by default."""

_PLACE: Final = re.compile(r"\{(subscription|schema|table)\}")
_CATALOG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_CATALOG: Final = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+")
_EXAMPLE: Final = "for example lake.orders: letters, digits and _, with a point before the table"


def _catalog(value: str) -> None:
    if not _CATALOG.fullmatch(value):
        raise ValueError(f"{value!r} names no catalog", "letters, digits and _, as in Spark's keys")


def _catalogs(value: Mapping[str, str]) -> None:
    for name in filter(None, value.values()):
        _catalog(name)


def _pattern(value: str) -> None:
    if "{table}" not in value or not _IN_CATALOG.fullmatch(_PLACE.sub("x", value)):
        raise ValueError(f"{value!r} makes no names of tables", f"for example {CATALOG_NAMES}")


def _chosen(value: Mapping[str, str]) -> None:
    for table, name in value.items():
        if table.count(".") < 2:
            raise ValueError(f"{table!r} does not name a table", "it is subscription.schema.table")
        if not _IN_CATALOG.fullmatch(name):
            raise ValueError(f"{name!r} is no name for {table}", _EXAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTable:
    """``[consumer]``: the Spark job."""

    subscriptions: tuple[str, ...] = ()
    """Names of the subscriptions to consume; each gets a streaming query of its own. `pgsluice
    consume` takes all that are defined when not set."""

    warehouse: Annotated[str, Rule(path=True)] = "warehouse"
    """Tables are at `<warehouse>/<subscription>/<schema>/<table>`; any Hadoop file system for
    Delta, a local disk or HDFS for Iceberg."""

    format: TableFormatName = "delta"
    """Format of the rebuilt tables: `delta` or `iceberg`; see [spark.md](spark.md#iceberg). Tables
    are not converted: another format needs another warehouse, and a copy."""

    formats: Mapping[str, TableFormatName] = field(default_factory=dict)
    """Subscriptions with another format: from the name to the format."""

    catalog: Annotated[str | None, Rule(check=_catalog)] = None
    """A catalog of Spark's that gives the rebuilt tables names: `spark_catalog` for Delta, one of
    Iceberg's, as its properties in `consumer.spark` describe it, for Iceberg; see
    [spark.md](spark.md#catalogs). Not set: tables are found by their folders."""

    catalogs: Annotated[Mapping[str, str], Rule(check=_catalogs)] = field(default_factory=dict)
    """Subscriptions with another catalog: from the name to the catalog, or to `""` for none."""

    catalog_names: Annotated[str, Rule(check=_pattern)] = CATALOG_NAMES
    """Names of tables in the catalog, in lower case and with `_` for any character other than a
    letter of ASCII or a digit."""

    catalog_tables: Annotated[Mapping[str, str], Rule(check=_chosen)] = field(default_factory=dict)
    """Names of single tables in the catalog: from `subscription.schema.table` to the name, as
    `namespace.table`."""

    readers: Readers = "current"
    """`widest` makes tables without what some readers lack: deletion vectors, column mapping and
    type widening of Delta, Iceberg's format version 3; [spark.md](spark.md#readers) has the cost.
    Tables keep what they have already."""

    json: JsonMode = "text"
    """`variant` makes columns of json and jsonb VARIANT in the rebuilt tables; see
    [spark.md](spark.md#json-as-variant) for what that loses and who reads it. Tables that exist
    need a copy after a change."""

    views: tuple[ViewEngine, ...] = ()
    """Engines (`spark`, `duckdb`) for which each cut replaces a file of SQL, with views that show
    all tables of a subscription at one point; see [spark.md](spark.md#views)."""

    checkpoint: Annotated[str, Rule(path=True)] = "checkpoint"
    """Spark's checkpoints, one folder below it per subscription."""

    topics: tuple[str, ...] = ()
    """Names of tables' topics that do not begin with `<subscription>.`; `pgsluice consume` adds
    those of `topics.names`. Markers that name any other topic are passed over."""

    trigger_interval_s: Annotated[float, Rule(least=0)] = 5.0
    """How often the Spark job looks for new markers, in seconds."""

    max_batch_records: Annotated[int, Rule(least=1)] = 1_000_000
    """The most records that the Spark job applies together, unless a single Kafka transaction has
    more."""

    min_partitions: Annotated[int | None, Rule(least=1)] = None
    """The least number of pieces in which the Spark job reads a large batch; by default one for
    50,000 records, at most twice the number of cores."""

    parallel_tables: Annotated[int, Rule(least=1)] = 2
    """How many tables the Spark job writes side by side; the small ones of a cut are shared among
    this many workers."""

    history: Annotated[tuple[str, ...], Rule(check=_tables)] = ()
    """Tables (`schema.table`, without quotes inside) of which a second table has every version of
    every row, in each subscription that has them; see [spark.md](spark.md#histories)."""

    history_interval_s: Annotated[float, Rule(least=0)] = 60.0
    """How often histories are written, in seconds; 0 for each cut. Each time costs a few seconds of
    Spark's work for each of them that lacks something."""

    keep_hours: Annotated[float, Rule(least=0)] = 168.0
    """How long past states of the rebuilt tables are kept."""

    maintenance_hours: Annotated[float, Rule(least=0)] = 24.0
    """Time between two rounds of maintenance of the rebuilt tables; 0 for never."""

    delta_private: Literal["auto", "never"] = "auto"
    """`never` makes the Spark job use Delta by its public interface alone, which is slower. `auto`
    does so only where Delta's own classes differ from those that the job knows."""

    metrics_listen: Annotated[str | None, Rule(check=address)] = None
    """`host:port` at which the Spark job serves `/metrics` for Prometheus, and its health."""

    metrics_hosts: tuple[str, ...] = ()
    """Further names under which `metrics_listen` is asked, beside its own, localhost and any
    address: a request for another name is refused (421); `*` is any name."""

    opentelemetry: bool = False
    """The Spark job's metrics, and a trace for each cut, are sent by OTLP, as by
    `monitor.opentelemetry`."""

    openlineage: bool = False
    """Which topic goes into which table is reported to a server of OpenLineage, as by
    `monitor.openlineage`."""

    shutdown_timeout_s: Annotated[float | None, Rule(above=0)] = None
    """How long a stop of the Spark job waits for what is being written; what takes longer is
    abandoned and read again by the next start. When not set: `limits.shutdown_timeout_s` for
    `pgsluice consume`, 10 seconds for `pgsluice-consume`."""

    kafka_java: Mapping[str, str] = field(default_factory=dict)
    """Properties of Spark's Kafka client under their Java names, beside what is translated from
    `[kafka]`."""

    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark properties of a session that the job makes itself."""

    def format_of(self, subscription: str) -> TableFormatName:
        """Return the format of a subscription's tables."""
        return self.formats.get(subscription, self.format)

    def catalog_of(self, subscription: str) -> str | None:
        """Return the catalog of a subscription's tables; None if they have none."""
        return self.catalogs.get(subscription, self.catalog) or None
