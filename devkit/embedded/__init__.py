"""PostgreSQL, Kafka, a schema registry, S3 and a Spark cluster as local processes.

For the demo, the tests and the benchmarks. The servers are the real ones; every one of them is a
child process that ends with the process that started it, also when that one is killed.
"""
