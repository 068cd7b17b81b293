"""``pgsluice consume``: the Spark job, in this process.

Under spark-submit the session is there already, with its jars; otherwise one is made, in local
mode unless ``[consumer] spark`` says otherwise, with the jars that `gateway.jars.ivy` fetches.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from gateway.config import Settings
from gateway.core.errors import ConfigError, FatalError, GatewayError, TransientError
from gateway.core.lsn import Lsn
from gateway.runtime.planning.plan import read_definitions
from spark_consumer.errors import ConsumerError, SettingsError, TransientConsumerError
from spark_consumer.settings import ConsumerSettings, with_connections

__all__ = ["consume", "consumer_settings", "known_subscriptions", "show_tables", "translated"]

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the Python process that it starts."""
_CATALOG: Final = "spark.sql.catalog."
_DRIVER: Final = "jdbc:postgresql:"
"""In the address of an Iceberg catalog that is in PostgreSQL."""


def consume(settings: Settings, *, subscriptions: Sequence[str], endpos: Lsn | None) -> int:
    """Run until SIGTERM, SIGINT or `endpos`; return the exit code.

    Raises:
        ConfigError: a subscription that is not defined, or a setting that cannot work.
        FatalError: a person must act.
        TransientError: a transient failure.
    """
    wanted = consumer_settings(settings, known_subscriptions(settings, subscriptions), endpos)
    # Late: pyspark takes a second to import.
    from spark_consumer.job.job import run
    from spark_consumer.spark.session import open_session

    try:
        with open_session(wanted) as spark:
            return run(wanted, spark)
    except ConsumerError as error:
        raise translated(error) from error


def show_tables(
    settings: Settings, *, subscriptions: Sequence[str], at: str | None, as_json: bool = False
) -> int:
    """Print the rebuilt tables, at versions that belong together; return the exit code.

    Args:
        settings: of the gateway.
        subscriptions: by default all that are defined.
        at: an LSN or a time; None for now.
        as_json: whether to print a JSON object for each subscription.

    Raises:
        ConfigError: a subscription that is not defined, or an `at` that is neither.
        FatalError: a subscription has no such state; the others have been printed.
        TransientError: the file system fails.
    """
    names = known_subscriptions(settings, subscriptions)
    from spark_consumer.listing import is_local, print_tables

    job = settings.consumer
    wanted = consumer_settings(settings, names, None, jars=not is_local(job.warehouse, job.spark))
    try:
        print_tables(wanted, at=at, as_json=as_json)
    except ConsumerError as error:
        raise translated(error) from error
    return 0


def known_subscriptions(settings: Settings, subscriptions: Sequence[str]) -> Sequence[str]:
    """Return the given names, by default those of ``[consumer]``, or else all that are defined.

    Raises:
        ConfigError: one of them is not defined.
    """
    known = [s.name for s in read_definitions(settings, masks=False).subscriptions]
    key = "--subscription" if subscriptions else "consumer.subscriptions"
    subscriptions = subscriptions or settings.consumer.subscriptions
    for name in subscriptions:
        if name not in known:
            raise ConfigError(
                f'subscription "{name}" is not defined',
                key=key,
                hint=f"defined are {', '.join(known)}",
            )
    return subscriptions or known


def consumer_settings(
    settings: Settings, subscriptions: Sequence[str], endpos: Lsn | None, *, jars: bool = True
) -> ConsumerSettings:
    """Return the part of the configuration that the Spark job needs, and the jars if wanted."""
    job = with_connections(settings.consumer, settings.kafka, settings.registry)
    kinds: set[str] = {job.format_of(name) for name in subscriptions}
    if any(key.startswith(_CATALOG) and _DRIVER in value for key, value in job.spark.items()):
        kinds.add("jdbc")
    return replace(
        job,
        subscriptions=tuple(subscriptions),
        topics=tuple(sorted({*settings.topics.names.values(), *job.topics})),
        endpos=endpos,
        shutdown_timeout_s=settings.consumer.shutdown_timeout_s
        or settings.limits.shutdown_timeout_s,
        jars=() if not jars or _SUBMITTED in os.environ else _jars(kinds),
    )


def _jars(kinds: Collection[str]) -> tuple[str, ...]:
    from gateway.jars.ivy import jars

    wanted = ["spark", *(name for name in ("iceberg", "jdbc") if name in kinds)]
    return tuple(str(path) for name in wanted for path in jars(name))


def translated(error: ConsumerError) -> GatewayError:
    """Return the gateway's error with the same exit code."""
    if isinstance(error, SettingsError):
        return ConfigError(error.message, hint=error.hint)
    if isinstance(error, TransientConsumerError):
        return TransientError(error.message, hint=error.hint)
    return FatalError(error.message, hint=error.hint)
