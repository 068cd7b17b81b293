"""What the markers in ``<subscription>.transaction`` promise.

A batch may hold millions of them; only the last word on each matter leaves Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.decode import AVRO_OPTIONS, Survey
from spark_consumer.progress import Marked

__all__ = ["read_markers"]


def read_markers(
    records: DataFrame, found: Survey, schemas: Mapping[int, str], after: int
) -> Marked | None:
    """Read the markers of a batch.

    Args:
        records: wire frame of the batch.
        found: what it holds of the transaction topic.
        schemas: the markers' schemas by id, as JSON text.
        after: offset of the last marker that was read before; those up to it are left out.

    Returns:
        None when none is new.
    """
    if found.last <= after or not found.pieces:
        return None
    mine = records.where((F.col("topic") == found.topic) & (F.col("offset") > after))
    frames = []
    for value_id, schema in schemas.items():
        marker = from_avro(F.col("value_body"), schema, AVRO_OPTIONS)
        frames.append(
            mine.where(F.col("value_id") == value_id)
            .select("offset", marker.alias("m"))
            .select(
                "offset",
                F.expr("m.kind AS kind"),
                F.expr("m.end_lsn AS end_lsn"),
                F.expr("m.partitions AS partitions"),
                F.expr("m.copy.schema AS copy_schema"),
                F.expr("m.copy.table AS copy_table"),
                F.expr("m.copy.state AS copy_state"),
            )
        )
    said = F.expr(
        """
        concat(
          array(named_struct('what', 'last', 'a', '', 'b', '', 'number', offset, 'text', '')),
          IF(kind IN ('END', 'PROGRESS'), array(named_struct(
            'what', 'end', 'a', '', 'b', '', 'number', end_lsn, 'text', '')), array()),
          IF(copy_state IS NULL, array(), array(named_struct(
            'what', 'copy', 'a', copy_schema, 'b', copy_table, 'number', 0L,
            'text', copy_state))),
          transform(partitions, p -> named_struct(
            'what', 'total', 'a', p.topic, 'b', CAST(p.partition AS STRING), 'number', p.total,
            'text', ''))
        )"""
    )
    words = (
        reduce(DataFrame.unionByName, frames)
        .select("offset", F.inline(said))
        .groupBy("what", "a", "b")
        .agg(F.max_by("number", "offset").alias("number"), F.max_by("text", "offset").alias("text"))
        .collect()
    )
    if not words:
        return None
    by_kind = {kind: [row for row in words if row.what == kind] for kind in ("last", "end")}
    return Marked(
        offset=by_kind["last"][0].number,
        end_lsn=by_kind["end"][0].number if by_kind["end"] else None,
        promised={(row.a, int(row.b)): row.number for row in words if row.what == "total"},
        copies={f"{row.a}.{row.b}": row.text for row in words if row.what == "copy"},
    )
