-- A table in Flink SQL that follows a topic of pgsluice in the format row, up to what is there now.
--
-- Each row takes the place of the one under its key, and a tombstone removes it. The format has no
-- truncates: rows that a TRUNCATE removes stay, unless a trigger in the source deletes them
-- (docs/debezium.md, "Truncates as deletes").
CREATE TABLE t (
  a INT,
  b STRING,
  PRIMARY KEY (a) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${BOOTSTRAP_SERVERS}',
  'properties.isolation.level' = 'read_committed',
  'scan.bounded.mode' = 'latest-offset',
  'key.format' = 'avro-confluent',
  'key.avro-confluent.url' = '${REGISTRY}',
  'value.format' = 'avro-confluent',
  'value.avro-confluent.url' = '${REGISTRY}'
);

SELECT a, b FROM t;
