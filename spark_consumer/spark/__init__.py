"""Spark itself: the session, its tuning, its listener, its file systems and its failures.

Nothing here knows of topics or tables.
"""
