"""The Spark job: it rebuilds a subscription's tables in a lakehouse from the topics.

`job` plans and runs cuts, `kafka` reads, `fold` and `apply` bring a table up to date, `formats`
stores it, `states` says which versions belong together; `reader` is for those who read the tables.
It knows the gateway by the topics and by ``schemas/`` alone; see docs/spark.md.
"""
