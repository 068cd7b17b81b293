"""date, timestamp and timestamptz."""
