"""Edge to PostgreSQL: sessions, the replication stream, catalog, copies.

`session` opens connections; `stream` replicates; `catalog` reads; `provisioning` makes the
gateway's own objects; `copy` reads tables; `filters` asks about rows. Nothing here knows Kafka.
"""
