"""Path of a row: filters, targets, records and counters. Pure.

This code runs once per row or per transaction, on values prepared by `gateway.routing.build`.
`gateway._speedups` does the same in C; `native` connects the two.
"""
