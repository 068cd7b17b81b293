"""The edge to PostgreSQL: replication connection, slot, snapshot, catalog."""
