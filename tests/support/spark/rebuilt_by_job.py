"""The scenarios of native subscriptions, through the Spark job instead of a fold of the records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import TimestampType

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.gateway.scene import Scene


def by_job(
    spark: SparkSession, scene: Scene, kind: str
) -> Callable[[str, str], list[tuple[Any, ...]]]:
    """Return what gives the rows of a table, by subscription and name, as the topics are then."""

    def rows(subscription: str, table: str) -> list[tuple[Any, ...]]:
        folder = Path(scene.project.folder, "rebuilt", subscription)
        places = {"warehouse": str(folder / "w"), "checkpoint": str(folder / "c")}
        before = scene.project.extra
        scene.project.extra = {
            **before,
            "consumer": {**before.get("consumer", {}), **places, "format": kind},
        }
        try:
            settings = consumer_settings(load_settings(scene.project.write()), [subscription], None)
        finally:
            scene.project.extra = before
            scene.project.write()
        # Other tables may be held, which is for the scenario to say.
        with suppress(FatalConsumerError):
            run(replace(settings, available_now=True), spark, stopping=threading.Event())
        schema, _, name = table.rpartition(".")
        path = folder / "w" / subscription / (schema or "public") / name
        frame = spark.read.format(kind).load(str(path))
        instants = [isinstance(field.dataType, TimestampType) for field in frame.schema]
        return sorted(
            (
                tuple(
                    value.astimezone(UTC) if instant and value is not None else value
                    for value, instant in zip(row, instants, strict=True)
                )
                for row in frame.collect()
            ),
            key=repr,
        )

    return rows
