"""The Spark job: it rebuilds a subscription's tables in Delta Lake from the topics.

It knows the gateway by the topics and by ``schemas/`` alone; see docs/spark.md.
"""
