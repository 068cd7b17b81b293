"""Edge to Kafka: delivery, topics, registry, and the gateway's own topics.

`clients` creates clients; `topics` and `registry` manage the cluster; `delivery` produces;
`reading` consumes; `own_topics` keeps progress and owners. Nothing here depends on PostgreSQL.
"""
