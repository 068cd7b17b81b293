"""Any history, cut into any batches and replayed in any way, ends in the apply worker's table."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.apply import Applier
from spark_consumer.decode import survey, wire
from tests.spark.apply_worker import KeyedTable, Multiset
from tests.spark.histories import BAG_COLUMNS, KEYED_COLUMNS, bag_history, keyed_history
from tests.spark.records import StaticSchemas, TableTopic, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def apply(applier: Applier, records: DataFrame, *, small: bool) -> None:
    cut = wire(records, "s.transaction").cache()
    surveyed = survey(cut)
    with applier.gathered(cut) if small else nullcontext(cut) as whole:
        for found in surveyed:
            applier.apply(whole, found, small=small)
    cut.unpersist()


def contents(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(path)).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def play(
    spark: SparkSession, warehouse: Path, topic: TableTopic, chance: random.Random, batches: int
) -> None:
    """Apply in random cuts, going back to an earlier record now and then, with new appliers.

    The first batch is applied as a large one, those after it as small ones.
    """
    end = len(topic.records)
    cuts = [*sorted(chance.sample(range(1, end), batches - 1)), end]
    first = 0
    # The last round has nothing new.
    for cut in [*cuts, end]:
        applier = Applier(spark, str(warehouse), "s", topic.registry)
        apply(applier, frame(spark, topic.records, first, cut), small=cut != cuts[0])
        first = chance.choice([cut, chance.randrange(cut)])


@pytest.mark.parametrize("seed", [1])
def test_a_keyed_table_ends_as_the_apply_worker_leaves_it(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    topic = TableTopic(StaticSchemas(), "s.public.t", KEYED_COLUMNS, ["id"])
    model = KeyedTable("id")
    keyed_history(chance, topic, model, changes=400, keys=60)

    play(spark, tmp_path, topic, chance, batches=2)

    assert contents(spark, tmp_path / "s/public/t") == model.contents()


@pytest.mark.parametrize("seed", [3])
def test_a_multiset_ends_as_the_apply_worker_leaves_it(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    topic = TableTopic(StaticSchemas(), "s.public.t", BAG_COLUMNS, [])
    model = Multiset()
    bag_history(chance, topic, model, changes=300, values=25)

    play(spark, tmp_path, topic, chance, batches=2)

    assert contents(spark, tmp_path / "s/public/t") == model.contents()
