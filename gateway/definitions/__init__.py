"""CREATE PUBLICATION and CREATE SUBSCRIPTION, and what follows from them for each table. Pure.

`sql` reads texts, `tables` knows single tables, `ddl` reads what event triggers say. From these and
the catalog, `combine` makes the plan: how each subscription receives each table.
"""
