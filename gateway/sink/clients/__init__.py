"""Kafka clients: properties, errors, and the gateway's identity towards Kafka.

The code that writes with them belongs in the sibling folders.
"""
