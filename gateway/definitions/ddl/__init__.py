"""DDL messages: what the event triggers write into the stream, read and believed or not. Pure.

A message says what a transaction has changed of publications, partitions and types; from these
follows what is published from its commit on. The SQL of the triggers is in
`gateway.source.provisioning`.
"""
