"""Topics at the cluster: created, checked, compared with what the gateway knows of them.

Partitions, durability, identity and log bounds. Nothing here produces or consumes a record.
"""
