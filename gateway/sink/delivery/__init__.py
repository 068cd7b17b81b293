"""Delivery of record batches in Kafka transactions, and the offsets of the records.

It contains the producer's thread and everything that a transaction needs. Topics are created and
checked in `gateway.sink.topics`.
"""
