"""Moves: rows that enter or leave a subscription because another table has changed. Pure."""
