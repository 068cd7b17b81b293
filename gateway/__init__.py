"""The pgsluice gateway: one logical replication slot in, many filtered Kafka topics out.

The layers, from pure to edge: `pgoutput`, `relations`, `transactions`, `pgtypes`,
`rowfilter`, `envelope` and `routing` do no I/O; `source` (PostgreSQL) and `sink` (Kafka)
are the two edges; `pipeline` is the one loop that knows both. import-linter checks this.
"""
