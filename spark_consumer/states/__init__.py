"""States: for each cut the version of every table, so that tables are read together."""
