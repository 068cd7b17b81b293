-- The changes in a topic of pgsluice, in Flink SQL, up to what is there now.
--
-- The format is avro-confluent: the envelope as it is. What makes a table of it is table.sql.
CREATE TABLE changes (
  op STRING,
  `before` ROW<a INT, b STRING>,
  `after` ROW<a INT, b STRING>,
  headers MAP<STRING, BYTES> METADATA VIRTUAL
) WITH (
  'connector' = 'kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${BOOTSTRAP_SERVERS}',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'value.format' = 'avro-confluent',
  'value.avro-confluent.url' = '${REGISTRY}'
);

SELECT DECODE(headers['lsn'], 'US-ASCII') AS lsn, op, `before`, `after` FROM changes;
