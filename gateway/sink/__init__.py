"""The edge to Kafka: transactional producer, registry, topics, progress."""
