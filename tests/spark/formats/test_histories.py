"""Any history, cut into any batches and replayed in any way, ends in the apply worker's table."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.apply.driver import writer as small_writer
from spark_consumer.formats.delta import merge
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg import merge as iceberg_merge
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from tests.support.run.seeds import in_turn
from tests.support.spark.apply_worker import KeyedTable, Multiset
from tests.support.spark.direct import Direct, let_mark
from tests.support.spark.histories import BAG_COLUMNS, KEYED_COLUMNS, bag_history, keyed_history
from tests.support.spark.memory_format import MemoryFormat
from tests.support.spark.records import StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMATS: dict[str, Callable[[], TableFormat]] = {
    "by the driver": DeltaFormat,
    "by the driver, in a base": DeltaFormat,
    "by the driver, in a tail": DeltaFormat,
    "in frames": DeltaFormat,
    "marked": DeltaFormat,
    "merged": lambda: DeltaFormat(private=False),
    "Iceberg, rewritten": IcebergFormat,
    "Iceberg, marked": IcebergFormat,
    "in memory": MemoryFormat,
}
"""By way in which rows change; ``merged`` is Delta by its public interface."""


WAYS = [
    *in_turn(__name__, ["by the driver", "by the driver, in a base", "by the driver, in a tail"]),
    *in_turn(__name__, ["in frames", "marked"]),
    *in_turn(__name__, ["merged", "in memory"]),
    *in_turn(__name__, ["Iceberg, rewritten", "Iceberg, marked"]),
]
"""One of each kind; with another seed, other ones and another history."""

TAILS = {"by the driver, in a base": 0, "by the driver, in a tail": 4_000}
"""Bytes of the tail, where the driver marks rows of other files."""


def play(table: Direct, records: int, chance: random.Random, way: str) -> None:
    """Apply in random cuts, going back to an earlier record now and then, with new appliers.

    The first batch is applied in frames.
    """
    held = way.startswith("by the driver")
    batches = 6 if held else 2
    cuts = [*sorted(chance.sample(range(1, records), batches - 1)), records]
    first = 0
    # The last round has nothing new.
    for cut in [*cuts, records]:
        table.apply(cut, first=first, held=held and cut != cuts[0])
        if cut == cuts[0] and way in TAILS:
            let_mark(table)
        first = chance.choice([cut, chance.randrange(cut)])
    assert table.held == (batches - 1 if held else 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_keyed_table_ends_as_the_apply_worker_leaves_it(
    spark: SparkSession, tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "marked":
        monkeypatch.setattr(small_writer, "LARGEST_BYTES", -1)
        monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    if way == "Iceberg, marked":
        monkeypatch.setattr(iceberg_merge, "VECTOR_BYTES", -1)
    if way in TAILS:
        monkeypatch.setattr(small_writer, "TAIL_BYTES", TAILS[way])
    chance = random.Random(seed)
    topic = TableTopic(StaticSchemas(), "s.public.t", KEYED_COLUMNS, ["id"], partitions=3)
    model = KeyedTable("id")
    keyed_history(chance, topic, model, changes=400, keys=60)

    table = Direct(spark, tmp_path, topic, FORMATS[way]())

    play(table, len(topic.records), chance, way)

    assert table.rows() == model.contents()


@pytest.mark.parametrize("way", in_turn(__name__, ["by the driver, in a tail", "in frames"]))
def test_a_table_under_another_key_ends_as_the_apply_worker_leaves_it(
    spark: SparkSession, tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way in TAILS:
        monkeypatch.setattr(small_writer, "TAIL_BYTES", TAILS[way])
    chance = random.Random(seed)
    topic = TableTopic(
        StaticSchemas(), "s.public.t", KEYED_COLUMNS, ["a"], partitions=3, identity=["id"]
    )
    model = KeyedTable("id")
    keyed_history(chance, topic, model, changes=400, keys=60)

    table = Direct(spark, tmp_path, topic, FORMATS[way]())

    play(table, len(topic.records), chance, way)

    assert table.rows() == model.contents()


@pytest.mark.parametrize(
    "way",
    [
        *in_turn(__name__, ["by the driver", "in frames"]),
        *in_turn(__name__, ["merged", "Iceberg, marked", "in memory"]),
    ],
)
def test_a_multiset_ends_as_the_apply_worker_leaves_it(
    spark: SparkSession, tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "Iceberg, marked":
        monkeypatch.setattr(iceberg_merge, "VECTOR_BYTES", -1)
    chance = random.Random(seed)
    topic = TableTopic(StaticSchemas(), "s.public.t", BAG_COLUMNS, [])
    model = Multiset()
    bag_history(chance, topic, model, changes=300, values=25)

    table = Direct(spark, tmp_path, topic, FORMATS[way]())

    play(table, len(topic.records), chance, way)

    assert table.rows() == model.contents()
