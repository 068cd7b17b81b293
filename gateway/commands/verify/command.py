"""Command: options, connections, and output."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.commands.consume import consumer_settings, known_subscriptions, translated
from gateway.commands.table_names import find_table
from gateway.commands.verify.compared_tables import ComparedTable, compared_tables
from gateway.config import Settings
from gateway.core.display import say, shown
from gateway.core.errors import ConfigError, TransientError
from gateway.observe import event
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.setup import known_plan
from gateway.sink.registry import registry as gateway_registry
from gateway.source.session.connection import connect, server_facts
from schemas.table_names import quoted_name
from spark_consumer.errors import ConsumerError
from spark_consumer.kafka.registry import Registry
from spark_consumer.names import lsn_text
from spark_consumer.settings import ConsumerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify"]

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 3
"""Number of held tables that an error names."""


def verify(
    settings: Settings,
    *,
    subscriptions: Sequence[str] = (),
    tables: Sequence[str] = (),
    native: str | None = None,
    timeout_s: float = 600.0,
) -> int:
    """Print a line for each table, and the differences; log how far the comparison is.

    Tables of which the source does not say what they should hold are named first, and are no
    difference.

    Returns:
        0 if all tables that can be compared are equal, else 1.

    Args:
        settings: of the gateway.
        subscriptions: by default all that are defined.
        tables: ``TABLE`` or ``SCHEMA.TABLE``; by default all of each subscription.
        native: DSN of a native subscriber to compare with, instead of the source.
        timeout_s: how long to wait for the tables altogether.

    Raises:
        ConfigError: a subscription or table that is not defined, a setting that cannot work, or
            tables none of which can be compared.
        FatalError: a person must act.
        TransientError: what failed may pass.
    """
    names = known_subscriptions(settings, subscriptions)
    wanted = consumer_settings(settings, names, None)
    chosen = _chosen(settings, names, tables, native)
    for one in chosen:
        _say_excluded(one)
    if not any(one.comparable for one in chosen):
        raise ConfigError(
            "none of these tables can be compared with the source",
            hint="--native compares any table with that of a native subscription",
        )
    # Late: pyspark takes a second to import.
    event(_LOG, logging.INFO, "starting Spark", tables=sum(len(one.comparable) for one in chosen))
    from spark_consumer.spark.session import open_session

    try:
        with open_session(wanted) as spark:
            results = [
                _compare(settings, wanted, spark, one, native, timeout_s)
                for one in chosen
                if one.comparable
            ]
    except ConsumerError as error:
        raise translated(error) from error
    return 0 if all(results) else 1


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Tables of a subscription.

    Attributes:
        excluded: Tables of which the source does not say what they should hold.
    """

    subscription: str
    comparable: Sequence[ComparedTable]
    excluded: Sequence[ComparedTable]


def _chosen(
    settings: Settings, names: Sequence[str], tables: Sequence[str], native: str | None
) -> list[_Chosen]:
    with connect(settings.source.dsn, application_name="pgsluice verify") as connection:
        definitions = read_definitions(settings)
        if definitions.masks:  # a table keeps those of its earlier names
            plan = known_plan(settings, connection, definitions, server_facts(connection))
        else:
            plan = read_plan(settings, connection, definitions)
    hash_key = (settings.columns.hash_key or "").encode()
    chosen = []
    for name in names:
        found = compared_tables(plan, name, hash_key)
        if not found:
            held = [f"{one.schema}.{one.table}" for one in plan.held if one.subscription == name]
            raise TransientError(
                f"subscription {name} has no tables to compare"
                + (f": {', '.join(held[:_SHOWN])} held" if held else ""),
                hint="`pgsluice status` says why, and what to do" if held else None,
            )
        found = _named(name, found, tables) if tables else found
        # A native subscriber has everything that was published.
        excluded = [] if native is not None else [one for one in found if one.reason is not None]
        chosen.append(_Chosen(name, [one for one in found if one not in excluded], excluded))
    return chosen


def _named(
    subscription: str, found: Sequence[ComparedTable], names: Sequence[str]
) -> list[ComparedTable]:
    by_name = {(each.table.schema, each.table.name): each for each in found}
    wanted = [
        find_table(
            name,
            by_name,
            key="--table",
            absent=f"subscription {subscription} has no table",
            hint=shown(f"it has {', '.join(map(quoted_name, sorted(by_name)))}"),
        )
        for name in names
    ]
    return [by_name[each] for each in dict.fromkeys(wanted)]


def _say_excluded(chosen: _Chosen) -> None:
    for table in chosen.excluded:
        say(f"{chosen.subscription}: {table.name}: not compared: {table.reason}")


def _compare(
    settings: Settings,
    wanted: ConsumerSettings,
    spark: SparkSession,
    chosen: _Chosen,
    native: str | None,
    timeout_s: float,
) -> bool:
    from gateway.commands.verify.judge import against_native, against_source
    from gateway.commands.verify.moving_tables import MovingTables
    from gateway.commands.verify.native import NativeReader
    from gateway.commands.verify.source import SourceReader
    from spark_consumer.verify.rebuilt import RebuiltTables

    deadline = time.monotonic() + timeout_s
    subscription = chosen.subscription
    with closing(Registry(wanted.registry_url, wanted.registry, wanted.json)) as schemas:
        rebuilt = RebuiltTables(wanted, spark, subscription, schemas, deadline)
        if native is None:
            with (
                SourceReader(settings.source.dsn, settings.copy.chunk_rows) as reader,
                closing(gateway_registry.Registry(settings.registry)) as registry,
                MovingTables(settings.kafka, registry, subscription, deadline) as moving,
            ):
                manifest, verdicts = against_source(reader, rebuilt, chosen.comparable, moving.at)
        else:
            with NativeReader(native, subscription, deadline) as reader:
                manifest, verdicts = against_native(reader, rebuilt, chosen.comparable)
    for verdict in verdicts:
        say(f"{subscription}: {verdict.name}: {verdict.lines[0]}")
        for line in verdict.lines[1:]:
            say(f"    {line}")
    _say_excluded(chosen)
    equal = sum(verdict.equal for verdict in verdicts)
    other = "the source" if native is None else "the native subscriber"
    rest = f"; {len(chosen.excluded)} cannot be compared" if chosen.excluded else ""
    say(
        f"{subscription}: {equal} of {len(verdicts)} tables equal {other}"
        f" at {lsn_text(manifest.end_lsn)}{rest}"
    )
    return equal == len(verdicts)
