"""Subscriber tables in Delta Lake: the table, its log, and what a commit says of itself."""
