"""PostgreSQL's values in Spark: conversions and canonical forms of keys, by the names of the table.

schemas/types.toml says which type has which. Matters of one table format, or of the way records
arrive, do not belong here.
"""
