"""Routes of announced relations, built when a Relation message says something new. Pure.

Everything that can be decided once per relation is decided here: whether it can be published, under
which projections, to which topics. Rows belong in `gateway.routing.row`.
"""
