"""Kafka clients as such: their properties, their errors, and who the gateway is for Kafka.

What is written with them belongs to the folders beside this one.
"""
