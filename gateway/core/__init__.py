"""Values and helpers that every part of the gateway uses, and that use no part of it.

LSNs, errors, names, records, and the small things that guard a process: descriptors, background
calls, fail points. A module belongs here when the edges and the pure middle both need it. What
knows of PostgreSQL's catalog, of Kafka's clients or of the configuration does not.
"""
