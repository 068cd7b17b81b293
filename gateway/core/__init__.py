"""Values and helpers used throughout the gateway, which depend on no other part of it.

LSNs, errors, names, records, committed state, and process-level helpers: descriptors, background
calls, fail points.
A module belongs here when both the edges and the pure middle need it. Code that depends on
PostgreSQL's catalog, on Kafka's clients or on the configuration does not.
"""
