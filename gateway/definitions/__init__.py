"""Publications and subscriptions: parsing, and the plan of each table. Pure.

`sql` parses statements, `tables` describes single tables, `ddl` reads the messages of the event
triggers. From these and the catalog, `combine` makes the plan; `receiving` says how one
subscription receives each table.
"""
