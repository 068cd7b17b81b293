"""A table's share of a cut, applied exactly once.

The applier decides whether a share is complete, and splits it where columns change. There are two
ways to write what it hands on, each in a room: `driver` for few records of a small table, `frames`
for everything. Storage is left to `spark_consumer.formats`, and the choice of shares to
`spark_consumer.job`.
"""
