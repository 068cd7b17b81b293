"""Kafka clients: properties, errors, and the gateway's identity towards Kafka.

Code that uses the clients belongs in the sibling folders.
"""
