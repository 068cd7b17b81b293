"""CREATE PUBLICATION and CREATE SUBSCRIPTION, and what follows from them for each table."""
