"""Debezium and pgsluice on the same servers, under the same loads, in turn: ``make compare``.

Debezium runs as its documents say for exactly-once delivery: a worker of Kafka Connect in
distributed mode with ``exactly.once.source.support``, Avro by the registry that pgsluice uses, and
a publication of ours. Both have their default settings; `debezium` and `pgsluice` list the
exceptions. A scenario's verdict comes from PostgreSQL and from records that a consumer with
``read_committed`` has read, never from what a tool says of itself.
"""
