"""Partition trees as the catalog has them, read without a lock on any table.

``pg_partition_tree`` locks each partition that it finds: a lock of others on one of them, in any
tree, would keep the gateway from reading the whole catalog.
"""

from __future__ import annotations

__all__ = ["tree_of"]


def tree_of(root: str) -> str:
    """Return the WITH clause of ``tree (oid)``: a table and all its partitions.

    Args:
        root: OID of the table, as SQL; it may be a column of the outer query.
    """
    return (
        f"WITH RECURSIVE tree (oid) AS (SELECT {root} UNION"  # noqa: S608
        " SELECT i.inhrelid FROM tree AS t"
        " JOIN pg_catalog.pg_inherits AS i ON i.inhparent OPERATOR(pg_catalog.=) t.oid"
        " WHERE NOT i.inhdetachpending)"
    )
