"""Delivery: batches of records in Kafka transactions, and where each record went.

The producer's thread is here, and everything that a transaction needs. Topics are created and
checked in `gateway.sink.topics`.
"""
