"""Ends of transactions, by the END markers of a subscription's marker topic."""

from __future__ import annotations

import json
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.errors import ContractError
from spark_consumer.kafka.batch_profile import schema_id, schema_number
from spark_consumer.kafka.markers import Owner
from spark_consumer.kafka.registry import Schemas

__all__ = ["COLUMNS", "transactions"]

COLUMNS: Final = "lsn string, end_lsn bigint, time timestamp, xid bigint, origin string"
"""Columns of `transactions`, as DDL."""

# A record that is no marker is passed over, as the job does; see `marker_trust`.
_OPTIONS: Final = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
_MOST_SCHEMAS: Final = 64


def transactions(records: DataFrame, schemas: Schemas, owner: Owner | None) -> DataFrame:
    """Return the transactions that END markers name.

    Args:
        records: Frame of value, from Spark's Kafka source, of the marker topic.
        schemas: Writer schemas by ID.
        owner: Owner of the topics; markers of others are passed over. None if not known.

    Returns:
        Frame of lsn (of the commit, as in the header `commit_lsn`), end_lsn, time, xid and origin;
        one row for each transaction.

    Raises:
        TransientConsumerError: the registry does not answer.
    """
    body = "substring(value, 2, 4)"
    wire = "length(value) > 5 AND substring(value, 1, 1) = X'00'"
    rows = records.where(wire).select(F.expr(body).alias("id")).distinct().limit(_MOST_SCHEMAS)
    frames = []
    for number in sorted(schema_number(row["id"]) for row in rows.collect()):
        try:
            schema = schemas.schema(number)
        except ContractError:
            continue
        if (schema.get("namespace"), schema.get("name")) != ("pgsluice", "Marker"):
            continue
        marker = from_avro(F.expr("substring(value, 6)"), json.dumps(schema), _OPTIONS)
        mine = records.where(F.expr(wire) & (F.expr(body) == schema_id(number)))
        ends = mine.select(marker.alias("m")).where("m.kind = 'END' AND m.commit_lsn IS NOT NULL")
        if owner is not None and any(one["name"] == "writer" for one in schema["fields"]):
            system, database, slot = owner
            ends = ends.where(
                F.col("m.writer").isNull()
                | (F.col("m.writer.system_identifier") == system)
                & (F.col("m.writer.database") == database)
                & (F.col("m.writer.slot") == slot)
            )
        digits = "lpad(hex(m.commit_lsn), 16, '0')"
        frames.append(
            ends.select(
                F.expr(f"concat(left({digits}, 8), '/', right({digits}, 8))").alias("lsn"),
                F.col("m.end_lsn").alias("end_lsn"),
                F.col("m.commit_time").alias("time"),
                F.col("m.xid").alias("xid"),
                F.col("m.origin").alias("origin"),
            )
        )
    if not frames:
        return records.sparkSession.createDataFrame([], COLUMNS)
    return reduce(DataFrame.unionByName, frames).dropDuplicates(["lsn"])
