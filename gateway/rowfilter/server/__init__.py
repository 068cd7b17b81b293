"""Filters that a server evaluates: the question about a batch of rows, and push-down. Pure.

The SQL is made here; the session that asks is in `gateway.source.filters`.
"""
