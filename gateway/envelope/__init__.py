"""From relation to Avro schema, from change to Kafka key, value and headers. No I/O.

Read in this order: `naming` (topics, Avro names), `schema` (which Avro a table becomes), `varint`
and `conversions` (a value's text to its Avro bytes), `encoders` (a row, prepared per relation),
`canonical` (equal keys, equal bytes), `envelope` and `headers` (a record), `markers` (everything
that is not a row). `reference` is the slow, readable form that the tests hold the fast one to.
The contract for consumers is docs/envelope.md.
"""
