"""Decode a large batch in one pass, taking for granted that its schemas are those of the last one.

Which schemas a batch has, and whether all of its records are there, is known when it has been read;
reading and decoding again is what costs most then. So the records are decoded as if they were like
the last batch's, and counted on the way. Where one of them is not, what was decoded is thrown away,
and the batch is surveyed before it is decoded (`spark_consumer.survey`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.decode import changes
from spark_consumer.layout import ColumnPlan, KeyLayout
from spark_consumer.position import Share
from spark_consumer.registry import Schemas
from spark_consumer.small import stored
from spark_consumer.survey import IS_CHANGE, IS_MOVE, IS_REMOVAL, Piece

__all__ = ["decoded_as"]

_NAME: Final = "counts"


@contextmanager
def decoded_as(
    kind: Piece,
    share: Share,
    records: DataFrame,
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Schemas,
) -> Iterator[tuple[Piece | None, DataFrame]]:
    """Read and decode a share, and keep its changes with the executors for a while.

    Args:
        kind: the schemas that its records should have.
        share: what is to be applied.
        records: wire frame of it.
        columns: the table's.
        key: None for a multiset.
        schemas: the writer schemas.

    Returns:
        What there is, and the changes. None, when records have other schemas, are no changes, or
        are not those that the markers promise: the changes are of no use then.
    """
    counted = records.observe(_NAME, *_counts(kind, share))
    frame = changes(counted, [kind], columns, key, schemas)
    with stored(frame) as kept:
        found = frame._jdf.queryExecution().observedMetrics().apply(_NAME)
        numbers = [int(found.getLong(number)) for number in range(4 + len(share.spans))]
        others, changed, removals, moves, *held = numbers
        as_said = held == [span.records for span in share.spans]
        if others or not changed or not as_said:
            yield None, kept
        else:
            yield Piece(kind.key_id, kind.value_id, changed, removals, moves), kept


def _counts(kind: Piece, share: Share) -> list[Expr]:
    key = F.lit(None) if kind.key_id is None else F.lit(kind.key_id)
    alike = (F.col("value_id") == kind.value_id) & F.col("key_id").eqNullSafe(key)
    # A tombstone has no value; it belongs to a record that is looked at.
    other = F.expr("fault IS NOT NULL") | (
        F.col("value_id").isNotNull() & ~(alike & F.expr(IS_CHANGE))
    )
    return [
        F.count_if(other).alias("others"),
        F.count_if(F.expr(IS_CHANGE)).alias("changes"),
        F.count_if(F.expr(IS_REMOVAL)).alias("removals"),
        F.count_if(F.expr(IS_MOVE)).alias("moves"),
        *(
            F.count_if(F.col("partition") == span.partition).alias(f"partition{span.partition}")
            for span in share.spans
        ),
    ]
