"""Preparation of an attempt or a reload: plan, topics, owners, checks.

Faults of single tables are found here, and hold these tables; only faults that concern every table
refuse a start. How the plan follows from definitions is pure, in `gateway.definitions`.
"""
