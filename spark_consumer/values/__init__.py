"""PostgreSQL's values in Spark: conversions and canonical forms of keys, by the names of the table.

schemas/types.toml says which type has which. A value that is specific to a table format, or to the
way records come, does not belong here.
"""
