"""A history shows at any LSN what the apply worker had then, however its records were cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.formats.delta import merge
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from tests.support.run.seeds import in_turn
from tests.support.spark.histories import BAG_COLUMNS, KEYED_COLUMNS, bag_history, keyed_history
from tests.support.spark.memory_format import MemoryFormat
from tests.support.spark.records import StaticSchemas
from tests.support.spark.versioned import (
    DatedMultiset,
    DatedTable,
    DatedTopic,
    Versioned,
    as_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMATS: dict[str, Callable[[], TableFormat]] = {
    "Delta, marked": DeltaFormat,
    "Iceberg": IcebergFormat,
    "in memory": MemoryFormat,
}
LSNS = 1_000


def play(history: Versioned, chance: random.Random) -> None:
    """Apply random cuts, going back to an earlier record now and then; check 1,000 LSNs."""
    records = len(history.dated.records)
    begin, *cuts = sorted(chance.sample(range(1, records), 2))
    history.begin(begin)
    first = 0
    # The last round has nothing new.
    for cut in [*cuts, records, records]:
        history.follow(cut, first=first)
        first = chance.choice([cut, chance.randrange(cut)])

    versions = history.versions()
    known = int(history.dated.records[begin - 1].headers[1][1].decode().split("/")[1], 16)
    last = max(history.dated.states)
    for lsn in chance.choices(range(known + 5, last + 10), k=LSNS):
        assert as_of(versions, lsn) == history.dated.at(lsn), lsn
    identities = [(row["_row"], row["_from_lsn"], row["_from_seq"]) for row in versions]
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("way", ["in memory", *in_turn(__name__, ["Delta, marked", "Iceberg"])])
def test_a_keyed_tables_history_shows_each_state(
    spark: SparkSession, tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "Delta, marked":
        monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    chance = random.Random(seed)
    topic = DatedTopic(StaticSchemas(), "s.public.t", KEYED_COLUMNS, ["id"], partitions=3)
    keyed_history(chance, topic, DatedTable(topic, "id"), changes=160, keys=30)

    play(Versioned(spark, tmp_path, topic, FORMATS[way]()), chance)


def test_a_multisets_history_shows_each_state(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    topic = DatedTopic(StaticSchemas(), "s.public.t", BAG_COLUMNS, [])
    bag_history(chance, topic, DatedMultiset(topic), changes=120, values=15)

    play(Versioned(spark, tmp_path, topic, MemoryFormat()), chance)
