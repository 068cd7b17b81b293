"""The job: a streaming query per subscription, its cuts, the plan of each, and maintenance.

What a single table's share becomes is in `spark_consumer.apply`.
"""
