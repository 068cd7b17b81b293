"""PostgreSQL's values in Spark: what it prints as values of columns, and when keys are equal.

What is specific to a table format, or to the way records come, does not belong here.
"""
