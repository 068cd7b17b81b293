"""Compare Delta tables with the rows that they should have, without holding either.

    source ──► Spool ──┐                    what topics changed meanwhile
                       ├──► expected rows ◄─ (`window`, replayed by `replay`)
                       ▼
            counts and checksums by bucket  ◄──►  the same of a version of the Delta table
                       │ where they differ
                       ▼
                differing keys

Rows are known by the marks of their values (`text`). Nothing here knows where the rows of the spool
come from.
"""
