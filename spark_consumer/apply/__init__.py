"""A table's share of a cut, applied: strategies by batch and table, exactly once.

The applier decides whether a share is complete and which strategy writes it. What a format does
with the rows is in `spark_consumer.formats`; which shares there are is decided in
`spark_consumer.job`.
"""
