"""Comparison of tables with the rows that they should have, without loading either into memory.

    source ──► Spool ──┐                    what topics changed meanwhile
                       ├──► expected rows ◄─ (`window`, replayed by `replay`)
                       ▼
            counts and checksums by bucket  ◄──►  the same of a version of the Delta table
                       │ where they differ
                       ▼
                differing keys

Rows are represented by the marks of their values (`text`). The caller decides where the rows of the
spool come from.
"""
