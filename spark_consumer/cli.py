"""``pgsluice-consume``, and ``python -m spark_consumer``: the Spark job as an application."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_consumer.errors import (
    FatalConsumerError,
    SettingsError,
    TransientConsumerError,
)
from spark_consumer.names import lsn_number
from spark_consumer.settings import ConsumerSettings
from spark_consumer.settings_file import load_settings

__all__ = ["main"]

_GAVE_UP: Final = 75
"""Exit code of an error that may pass: EX_TEMPFAIL of sysexits.h."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 done, 1 failed, 2 usage, 75 may pass."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # Py4J logs every call that a JVM which ends cannot answer any more.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        settings = load_settings(given.config)
        if given.subscription:
            settings = replace(settings, subscriptions=tuple(given.subscription))
        if not settings.subscriptions:
            raise SettingsError(
                "there is no subscription to consume",
                hint="name them in [consumer] subscriptions, or with --subscription",
            )
        if given.tables:
            from spark_consumer.listing import print_tables

            print_tables(settings, at=given.at, as_json=given.json)
            return 0
        return _consume(replace(settings, endpos=given.endpos, available_now=given.available_now))
    except TransientConsumerError as error:
        print(f"pgsluice-consume: {error}", file=sys.stderr)
        return _GAVE_UP
    except FatalConsumerError as error:
        print(f"pgsluice-consume: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pgsluice-consume",
        description="Rebuild subscriber tables from Kafka in Delta Lake or Iceberg.",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="TOML file, see docs/spark.md (default: what PGSLUICE_CONFIG names, pgsluice.toml in "
        "this folder, or /etc/pgsluice/pgsluice.toml)",
    )
    parser.add_argument(
        "--subscription", action="append", metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--endpos", type=_lsn, metavar="LSN", help="stop when all tables are complete until LSN"
    )
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="stop when all is applied that is there at the start",
    )
    parser.add_argument("--tables", action="store_true", help="list the tables instead, and end")
    parser.add_argument("--json", action="store_true", help="with --tables: as JSON objects")
    parser.add_argument("--at", metavar="LSN|TIME", help="with --tables: as they were then")
    return parser


def _lsn(text: str) -> int:
    found = lsn_number(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an LSN like 16/B374D848")
    return found


def _consume(settings: ConsumerSettings) -> int:
    # Late: pyspark takes a second to import.
    from spark_consumer.job.job import run
    from spark_consumer.spark.session import check_jars, open_session

    check_jars(settings)
    with open_session(settings) as spark:
        return run(settings, spark)
