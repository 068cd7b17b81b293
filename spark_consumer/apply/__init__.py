"""A table's share of a cut, applied: strategies by batch and table, exactly once.

The applier decides whether a share is complete and which strategy writes it. Storage is left to
`spark_consumer.formats`, and the choice of shares to `spark_consumer.job`.
"""
