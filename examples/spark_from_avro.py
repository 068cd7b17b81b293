"""Read a topic into a Spark DataFrame of your own, with Spark's `from_avro`.

    spark-submit --jars "$(ls -d dist/jars/*.jar | paste -sd,)" \
      examples/spark_from_avro.py localhost:9092 http://localhost:8081 s1.public.t1

For tables that equal the source's there is the job: docs/spark.md. This is for the changes.
"""

import sys
from functools import reduce

from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro


def changes(spark: SparkSession, bootstrap: str, registry: str, topic: str) -> DataFrame:
    """The changes in the topic: lsn, and the envelope's fields.

    Each record is read with the schema that it was written with, and brought to that of the newest
    record. The registry's latest version can be one of older records (docs/envelope.md, Evolution).
    """
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")  # never a part of a transaction
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .where("value IS NOT NULL")  # else a tombstone
        .select(
            F.expr("cast(map_from_entries(headers)['lsn'] AS string)").alias("lsn"),
            F.expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) AS int)").alias("schema_id"),
            F.expr("substring(value, 6)").alias("avro"),
        )
    )
    ids = records.groupBy("schema_id").agg(F.max("lsn").alias("last")).orderBy("last").collect()
    parts = []
    with SchemaRegistryClient({"url": registry}) as schemas:
        newest = schemas.get_schema(ids[-1].schema_id).schema_str
        for number, _ in ids:
            writer = schemas.get_schema(number).schema_str
            envelope = from_avro("avro", str(writer), {"avroSchema": str(newest)})
            part = records.where(F.col("schema_id") == number)
            parts.append(part.select("lsn", envelope.alias("change")).select("lsn", "change.*"))
    return reduce(DataFrame.union, parts)


def main() -> None:
    """Show the changes."""
    spark = SparkSession.builder.getOrCreate()
    changes(spark, *sys.argv[1:4]).select("lsn", "op", "before", "after").show(truncate=False)


if __name__ == "__main__":
    main()
