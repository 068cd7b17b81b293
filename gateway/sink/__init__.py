"""The edge to Kafka: delivery, topics, registry, and the gateway's own topics.

`clients` makes clients; `topics` and `registry` know the cluster; `delivery` produces; `reading`
reads as a consumer does; `own_topics` keeps progress and owners. Nothing here knows PostgreSQL.
"""
