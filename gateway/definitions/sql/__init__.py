"""CREATE PUBLICATION and CREATE SUBSCRIPTION as text: grammar, options, expressions. Pure.

PostgreSQL's own parser makes the tree; here it becomes values of `gateway.definitions.model`, with
a position for each error. Whether a table or a column exists is asked elsewhere.
"""
