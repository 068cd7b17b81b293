"""text, varchar, bpchar, name and bytea."""
