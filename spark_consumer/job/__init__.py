"""The job: a streaming query per subscription, its cuts, the plan of each, and maintenance.

Application of a single table's share is in `spark_consumer.apply`.
"""
