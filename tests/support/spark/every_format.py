"""Tables in every format, from one gateway's run over one set of topics.

Two ways: jobs that run until an LSN, each with a warehouse of its own over the same subscription
(`EveryFormat`); or one job over a subscription for each format, to the same publications, where the
job runs beside the gateway (`subscriptions`, `choose_formats`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from gateway.core.lsn import parse_lsn
from schemas.settings.tables import TableFormatName
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.gateway.scene import Scene

FORMATS: Final[tuple[TableFormatName, ...]] = get_args(TableFormatName)


class EveryFormat:
    """A warehouse for each format, all of them rebuilt from the same topics.

    Args:
        spark: The run's session.
        folder: Folder for warehouses and checkpoints.
        kafka: Address of the broker.
        registry: URL of the registry.
        more: Further settings.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, kafka: str, registry: str, **more: Any
    ) -> None:
        self._spark = spark
        self._settings: dict[TableFormatName, ConsumerSettings] = {
            kind: ConsumerSettings(
                kafka={"bootstrap.servers": kafka},
                registry_url=registry,
                warehouse=str(folder / kind),
                checkpoint=str(folder / f"checkpoint-{kind}"),
                format=kind,
                **more,
            )
            for kind in FORMATS
        }

    def complete(self, endpos: str, *subscriptions: str) -> None:
        """Run a job for each format until the tables are complete at an LSN.

        Raises:
            FatalConsumerError: tables are held, by all of the jobs alike.
        """
        errors = []
        lsn = parse_lsn(endpos)
        for kind, settings in self._settings.items():
            until = replace(self.settings(kind, *subscriptions), endpos=lsn)
            try:
                assert run(until, self._spark, stopping=threading.Event()) == 0
            except FatalConsumerError as error:
                errors.append(error)
                continue
            for name in subscriptions:
                warehouse = settings.warehouse
                state = state_at(name, at=None, warehouse=warehouse, spark=self._spark)
                complete = state.complete_lsn
                assert complete is not None and complete >= lsn, kind
        if errors:
            assert len(errors) == len(FORMATS), errors
            assert len({(error.message, error.hint) for error in errors}) == 1, errors
            raise errors[0]

    def settings(self, kind: TableFormatName, *subscriptions: str) -> ConsumerSettings:
        """The settings of one format's job."""
        return replace(self._settings[kind], subscriptions=subscriptions)

    def frames(self, subscription: str, table: str) -> Iterator[tuple[str, DataFrame]]:
        """The rows of a table, ``schema.table`` or one of schema public, by format."""
        schema, _, name = table.rpartition(".")
        for kind, settings in self._settings.items():
            path = Path(settings.warehouse, subscription, schema or "public", name)
            yield kind, self._spark.read.format(kind).load(str(path))

    def rows(self, subscription: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table, sorted, which are the same in all formats."""
        found = {kind: sorted_rows(frame) for kind, frame in self.frames(subscription, table)}
        for kind, rows in found.items():
            assert repr(rows) == repr(found[FORMATS[0]]), (kind, table)  # NaN is not equal to NaN
        return found[FORMATS[0]]


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame, sorted as `NativeSubscription.rows` sorts."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def subscriptions(
    slot: str, publications: str, kinds: Collection[TableFormatName] = FORMATS
) -> str:
    """Definitions of a subscription for each format, all to the same publications."""
    return "".join(
        f"CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION {publications};"
        for name in formats_of(slot, kinds)
    )


def choose_formats(
    s: Scene, kinds: Collection[TableFormatName] = FORMATS
) -> dict[str, TableFormatName]:
    """Let the scene's job have the formats of `subscriptions`; return them by subscription."""
    formats = formats_of(s.slot, kinds)
    consumer = {**s.project.extra.get("consumer", {}), "formats": formats}
    s.project.extra = {**s.project.extra, "consumer": consumer}
    return formats


def formats_of(slot: str, kinds: Collection[TableFormatName]) -> dict[str, TableFormatName]:
    """The format by subscription of `subscriptions`, as ``[consumer] formats`` has it."""
    return {f"{slot}_{kind}": kind for kind in kinds}
