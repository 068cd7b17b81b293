"""The path of a row: filters, targets, records, and what is counted on the way. Pure.

What runs here runs once per row or per transaction, on values that `gateway.routing.build` has
prepared. The same in C is `gateway._speedups`; `native` stands between the two.
"""
