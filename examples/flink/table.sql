-- A table in Flink SQL that follows a topic of pgsluice, up to what is there now.
--
-- The subscription has the format debezium and is one of those in [envelope] without_truncates, as
-- debezium-avro-confluent stops at a truncate: rows that a TRUNCATE removes stay, unless a trigger in
-- the source deletes them (docs/debezium.md, "Truncates as deletes"). The format needs the whole old
-- row, so the table has REPLICA IDENTITY FULL. Changes come while the table is copied:
-- by the key, and RunSql.java's table.exec.source.cdc-events-duplicate, each row is there once.
CREATE TABLE t (
  a INT,
  b STRING,
  PRIMARY KEY (a) NOT ENFORCED
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
