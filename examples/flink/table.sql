-- A table in Flink SQL that follows a topic of pgsluice, up to what is there now.
--
-- The format is debezium-avro-confluent, which knows no truncate and needs the whole old row. So the
-- table has REPLICA IDENTITY FULL, the subscription is made WITH (copy_data = false), since a copy
-- begins with a truncate, and [topics] truncate = "skip" is set. What was in the table before the
-- subscription is not in the topic then.
CREATE TABLE t (
  a INT,
  b STRING
) WITH (
  'connector' = 'kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${BOOTSTRAP_SERVERS}',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'value.format' = 'debezium-avro-confluent',
  'value.debezium-avro-confluent.url' = '${REGISTRY}'
);

SELECT a, b FROM t;
