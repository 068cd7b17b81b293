"""Local servers and the demo: for development, tests and benchmarks, never for production.

`devkit.embedded` runs PostgreSQL, Kafka and a registry as local processes; `devkit.demo` plays the
whole path on them. Nothing in `gateway` or `spark_consumer` imports it, except the command that
starts the demo.
"""
