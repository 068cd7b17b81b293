"""Command: options, connections, and output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.commands.consume import consumer_settings, known_subscriptions, translated
from gateway.commands.table_names import find_table, quoted_name
from gateway.commands.verify.compared_tables import ComparedTable, compared_tables
from gateway.config import Settings
from gateway.core.display import say
from gateway.core.errors import TransientError
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.setup import known_plan
from gateway.source.session.connection import connect, server_facts
from spark_consumer.errors import ConsumerError
from spark_consumer.kafka.registry import Registry
from spark_consumer.names import lsn_text
from spark_consumer.settings import ConsumerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify"]


def verify(
    settings: Settings,
    *,
    subscriptions: Sequence[str] = (),
    tables: Sequence[str] = (),
    native: str | None = None,
    timeout_s: float = 600.0,
) -> int:
    """Print a line for each table, and the differences; return 0 if all are equal, else 1.

    Args:
        settings: of the gateway.
        subscriptions: by default all that are defined.
        tables: ``TABLE`` or ``SCHEMA.TABLE``; by default all of each subscription.
        native: DSN of a native subscriber to compare with, instead of the source.
        timeout_s: how long to wait for the tables altogether.

    Raises:
        ConfigError: a subscription or table that is not defined, or a setting that cannot work.
        FatalError: a person must act.
        TransientError: what failed may pass.
    """
    names = known_subscriptions(settings, subscriptions)
    wanted = consumer_settings(settings, names, None)
    # Late: pyspark takes a second to import.
    from spark_consumer.spark.session import open_session

    try:
        with open_session(wanted) as spark:
            results = [
                _one(settings, wanted, spark, name, tables, native, timeout_s) for name in names
            ]
    except ConsumerError as error:
        raise translated(error) from error
    return 0 if all(results) else 1


def _one(
    settings: Settings,
    wanted: ConsumerSettings,
    spark: SparkSession,
    subscription: str,
    tables: Sequence[str],
    native: str | None,
    timeout_s: float,
) -> bool:
    from gateway.commands.verify.judge import against_native, against_source
    from gateway.commands.verify.native import NativeReader
    from gateway.commands.verify.source import SourceReader
    from spark_consumer.verify.rebuilt import RebuiltTables

    deadline = time.monotonic() + timeout_s
    with connect(settings.source.dsn, application_name="pgsluice verify") as connection:
        definitions = read_definitions(settings)
        if definitions.masks:  # a table keeps those of its earlier names
            plan = known_plan(settings, connection, definitions, server_facts(connection))
        else:
            plan = read_plan(settings, connection, definitions)
    hash_key = (settings.columns.hash_key or "").encode()
    chosen = _chosen(subscription, compared_tables(plan, subscription, hash_key), tables, native)
    with closing(Registry(wanted.registry_url, wanted.registry)) as schemas:
        rebuilt = RebuiltTables(wanted, spark, subscription, schemas, deadline)
        if native is None:
            with SourceReader(settings.source.dsn, settings.copy.chunk_rows) as reader:
                manifest, verdicts = against_source(reader, rebuilt, chosen)
        else:
            with NativeReader(native, subscription, deadline) as reader:
                manifest, verdicts = against_native(reader, rebuilt, chosen)
    for verdict in verdicts:
        say(f"{subscription}: {verdict.name}: {verdict.lines[0]}")
        for line in verdict.lines[1:]:
            say(f"    {line}")
    equal = sum(verdict.equal for verdict in verdicts)
    other = "the source" if native is None else "the native subscriber"
    say(
        f"{subscription}: {equal} of {len(verdicts)} tables equal {other}"
        f" at {lsn_text(manifest.end_lsn)}"
    )
    if not verdicts:
        raise TransientError(f"subscription {subscription} has no tables to compare")
    return equal == len(verdicts)


def _chosen(
    subscription: str, found: list[ComparedTable], names: Sequence[str], native: str | None
) -> list[ComparedTable]:
    by_name = {(each.table.schema, each.table.name): each for each in found}
    wanted = [
        find_table(
            name,
            by_name,
            key="--table",
            absent=f"subscription {subscription} has no table",
            hint=f"it has {', '.join(map(quoted_name, sorted(by_name)))}",
        )
        for name in names
    ]
    chosen = [by_name[each] for each in dict.fromkeys(wanted)] if names else found
    # A native subscriber has everything that was published.
    return chosen if native is None else [replace(one, reason=None) for one in chosen]
