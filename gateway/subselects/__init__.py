"""Row filters over other tables: ``customer_id IN (SELECT id FROM customers WHERE ...)``. Pure.

`text` makes a `formula` of a filter as written, and refuses what cannot be followed exactly; `sets`
has the values of sub-selects, kept by the changes of the inner tables; `moves` finds the rows that
enter and leave a subscription when a set changes; `following` is all of it for the loop, over rows
as `views` shows them. Only `sets` writes files, of values that do not fit into memory. Filters that
see one row are `gateway.rowfilter`'s.
"""
