"""The session of the tests has the real connectors of Kafka and Delta, and remembers names."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark import SparkConf

from spark_consumer.spark.session import quieten
from tests.support.backends.broker import create_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_spark_reads_kafka_and_merges_into_delta(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topic = f"embedded-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka})
    create_topics(admin, [NewTopic(topic, 1, 1)])
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, b"1")
    assert producer.flush(30) == 0
    path = str(tmp_path / "t")
    spark.range(1).write.format("delta").save(path)

    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id")
    )
    records.createOrReplaceTempView("arrived")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING arrived s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )

    rows = spark.read.format("delta").load(path).orderBy("id").collect()
    assert [row.id for row in rows] == [0, 1]


def test_a_log_level_in_the_jobs_own_settings_prevails(spark: SparkSession) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.log.level", "INFO")
    quieten(conf, spark._jvm)

    assert conf.get("spark.log.level") == "INFO"


def test_names_of_the_jvm_are_looked_up_once_unless_a_jar_can_still_bring_them(
    spark: SparkSession,
) -> None:
    jvm: Any = spark.newSession()._jvm

    for owner, name in ((jvm, "java"), (jvm.java.util, "ArrayList"), (jvm, "PythonUtils")):
        assert getattr(owner, name) is getattr(owner, name)
    assert jvm.java.util.ArrayList().size() == 0
    for owner, name in ((jvm.java.util, "Absent"), (jvm, "java.util.absent")):
        assert getattr(owner, name) is not getattr(owner, name)
