"""Small batches for small tables: read, folded and written by the driver, without a Spark job.

For a table of a few thousand rows Spark would mostly plan queries. Here the records of all tables
are read by one consumer, each table's rows are read from its files, changed in memory, and written
into a new file, by the Java classes in `java`; no row passes through Python. Whatever does not fit
(a large table, a type that needs a conversion) is left to `spark_consumer.apply.frames`.
"""
