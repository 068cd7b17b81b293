"""Speculative decoding of a batch in one pass, by guessed schemas.

Which schemas a batch has, and whether all of its records are there, is known when it has been read;
reading and decoding again is what costs most then. The records are therefore decoded as if they
were like the last batch's, or like the first ones of this, and counted on the way. If one of them
is not, the result is thrown away, and the batch is surveyed before it is decoded
(`spark_consumer.kafka.batch_profile`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.kafka.avro_values import AVRO_OPTIONS
from spark_consumer.kafka.batch_profile import (
    IS_CHANGE,
    IS_MOVE,
    IS_REMOVAL,
    Piece,
    begins_copy,
    of_piece,
    schema_id,
    schema_number,
)
from spark_consumer.kafka.decode import changes
from spark_consumer.kafka.layout import ColumnPlan, KeyLayout
from spark_consumer.kafka.position import Share
from spark_consumer.kafka.registry import Schemas
from spark_consumer.spark.tuning import stored

__all__ = ["Expected", "decoded_as", "observed", "peek", "well_formed"]

_NAME: Final = "counts"
_PEEK: Final = 16
_WAIT_S: Final = 60


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectation of the records of a share.

    Attributes:
        kind: Kind whose schemas all changes have.
        share: Share whose records they are, all of them.
        begins: Whether the first one in each partition begins a copy, and no other is a `t`.
    """

    kind: Piece
    share: Share
    begins: bool

    def counts(self, schemas: Schemas) -> list[Expr]:
        """Return aggregates over a wire frame, whose values `fulfilled` checks."""
        key_id, value_id = self.kind.key_id, self.kind.value_id
        known = of_piece(key_id, value_id) & F.expr(IS_CHANGE)
        aggregates: list[Expr] = []
        if self.begins:
            envelope = from_avro(
                F.col("value_body"), json.dumps(schemas.schema(value_id)), AVRO_OPTIONS
            )
            first = (
                (F.col("op") == "t")
                & (F.col("value_id") == schema_id(value_id))
                & (envelope.getField("source").getField("snapshot") == "first")
            )
            known |= first
            for span in self.share.spans:
                here = F.col("partition") == span.partition
                aggregates += [
                    F.count_if(here & F.expr("op = 't'")),
                    F.min(F.when(here, F.col("offset"))),
                    F.min(F.when(here & F.expr("op = 't'"), F.col("offset"))),
                ]
        # A tombstone has no value; it belongs to a record that is checked.
        other = F.expr("fault IS NOT NULL") | (
            F.col("value_id").isNotNull() & ~F.coalesce(known, F.lit(False))
        )
        aggregates = [
            F.count_if(other),
            F.count_if(F.expr(IS_CHANGE)),
            F.count_if(F.expr(IS_REMOVAL)),
            F.count_if(F.expr(IS_MOVE)),
            *(F.count_if(F.col("partition") == span.partition) for span in self.share.spans),
            *aggregates,
        ]
        return [one.alias(f"n{number}") for number, one in enumerate(aggregates)]

    def fulfilled(self, numbers: Sequence[int | None]) -> Piece | None:
        """Return the number of records of each kind; None if unexpected, or without any change."""
        spans = self.share.spans
        others, changed, removals, moves = (int(number or 0) for number in numbers[:4])
        read, begun = numbers[4 : 4 + len(spans)], numbers[4 + len(spans) :]
        if others or not changed or list(read) != [span.records for span in spans]:
            return None
        for number in range(0, len(begun), 3):
            count, first, first_t = begun[number : number + 3]
            if count != 1 or first != first_t:
                return None
        return Piece(self.kind.key_id, self.kind.value_id, changed, removals, moves)


def peek(records: DataFrame, schemas: Schemas) -> tuple[Piece | None, bool]:
    """Return the expectation of a share by some of its first records.

    Args:
        records: Wire frame of the share.
        schemas: Writer schemas by ID.

    Returns:
        The schemas of the changes, if these records have the same; and whether a copy begins.
    """
    seen = (
        records.where("value_id IS NOT NULL AND fault IS NULL")
        .select(
            "offset",
            "key_id",
            "value_id",
            F.expr("op = 't'").alias("empties"),
            F.expr(f"coalesce({IS_REMOVAL}, false)").alias("removes"),
            F.expr("IF(op = 't', value_body, NULL)").alias("body"),
        )
        .limit(_PEEK)
        .collect()
    )
    ids = {
        (row.key_id and schema_number(row.key_id), schema_number(row.value_id))
        for row in seen
        if not row.empties
    }
    if len(ids) != 1:
        return None, False
    first = seen[0]
    begins = first.empties and begins_copy(
        bytes(first.body), schemas.schema(schema_number(first.value_id))
    )
    (key_id, value_id) = ids.pop()
    return Piece(key_id, value_id, len(seen), sum(row.removes for row in seen), 0), begins


def observed(spark: SparkSession, observation: Observation) -> list[int | None] | None:
    """Return the values of an observation whose frame has run; None when Spark has none.

    They arrive slightly later.
    """
    jvm: Any = spark._jvm
    future = observation._jo.future()  # type: ignore[union-attr]
    try:
        jvm.scala.concurrent.Await.ready(
            future, jvm.scala.concurrent.duration.Duration.create(_WAIT_S, "seconds")
        )
    except Py4JJavaError:
        return None
    row: Any = future.value().get().get()
    return [None if row.isNullAt(n) else int(row.getLong(n)) for n in range(row.length())]


def well_formed(records: DataFrame) -> DataFrame:
    """Return the records that can be decoded; the others make a guess wrong, and are surveyed."""
    return records.where("fault IS NULL")


@contextmanager
def decoded_as(
    expected: Expected,
    records: DataFrame,
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Schemas,
) -> Iterator[tuple[Piece | None, DataFrame]]:
    """Read and decode a share; the executors store its changes while the block runs.

    Args:
        expected: Expectation of the share's records.
        records: Wire frame of the share.
        columns: Columns of the table.
        key: Key of the table; None for a multiset.
        schemas: Writer schemas by ID.

    Returns:
        The result of `Expected.fulfilled`, and the changes, which must not be used if it is None.
    """
    counted = records.observe(_NAME, *expected.counts(schemas))
    frame = changes(well_formed(counted), [expected.kind], columns, key, schemas)
    with stored(frame) as kept:
        row: Any = frame._jdf.queryExecution().observedMetrics().apply(_NAME)
        yield expected.fulfilled([int(row.getLong(n)) for n in range(row.length())]), kept
