"""From relation to Avro schema, from change to Kafka key, value and headers. No I/O.

Read in this order: `gateway.core.names` (topics, Avro names), `schema` (which Avro a table
becomes), `encoding` (a value's text to Avro bytes, a row's encoder), `canonical` (equal keys, equal
bytes), `envelope` and `headers` (a record), `markers` (everything that is not a row). The tests
hold the encoders to a slow, readable reference. The contract for consumers is docs/envelope.md.
"""
