"""Parser of CREATE PUBLICATION and CREATE SUBSCRIPTION: grammar, options, expressions. Pure.

PostgreSQL's own parser makes the tree, which becomes values of `gateway.definitions.model` here,
with a position for each error. Whether a table or a column exists is checked elsewhere.
"""
