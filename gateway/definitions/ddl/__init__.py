"""DDL messages, which the event triggers write into the stream: parsing and verification. Pure.

A message says which publications, partitions and types a transaction has changed, which decides
what is published from its commit on. The SQL of the triggers is in `gateway.source.provisioning`.
"""
