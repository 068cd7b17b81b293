"""Copies of tables while the stream goes on: jobs, threads that read, and the order of their rows.

The rules by which a chunk is placed in the stream are pure and are in `gateway.copy`; the queries
are in `gateway.source.copy`. This folder runs them.
"""
