"""Small batches for tables that are not large, by the driver, without a Spark job.

For a few thousand changes Spark would mostly plan queries. Here the records of all tables are read
by one consumer, the rows that they change are found in each table's files, changed in memory, and
written into a new file, by the Java classes in `java`; no row passes through Python. Whatever does
not fit (a large table, a type that needs a conversion) is left to `spark_consumer.apply.frames`.
"""
