"""Topics of the cluster: creation, checks, and comparison with the gateway's knowledge.

This covers partitions, durability, identity and log bounds. Nothing here produces or consumes a
record.
"""
