"""The pgsluice gateway: one logical replication slot in, many filtered Kafka topics out.

Pure in the middle (`definitions`, `pgoutput`, `transactions`, `rowfilter`, `envelope`, `routing`,
`copy`), two edges (`source`, `sink`), one loop that knows both (`runtime`), and what people see of
it (`monitor`, `commands`). docs/architecture.md follows one row through them; import-linter checks
the layers.
"""
