"""Description of the table of sub-selects that is kept with a set, and what makes it another. Pure.

A set is built again if rows can have got values of which the stream has shown nothing. One whose
table has other partitions is read again, and the difference is its change.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import astuple, replace

from gateway.definitions.model import Plan, Table
from gateway.definitions.sql.formulas import inner_columns
from gateway.definitions.tables.remembered import read_column, stored_columns
from gateway.definitions.tables.shape import read_shape, unseen_change, write_shape

__all__ = [
    "as_tree_of",
    "describe_inner",
    "has_other_partitions",
    "is_other_tree",
    "other_trees",
    "why_other",
]


def describe_inner(table: Table, names: Collection[str]) -> str:
    """Return a description of the columns `names` of a table, for `why_other`."""
    columns = [replace(column, missing=None) for column in table.columns if column.name in names]
    description: list[object] = [stored_columns(map(astuple, columns)), write_shape(table.shape)]
    if _is_of_tree(table):
        description += [list(table.ancestors), list(table.leaves)]
        description += [table.tree_digest, list(table.by_tree)]
    return json.dumps(description, ensure_ascii=False, separators=(",", ":"))


def why_other(text: str, table: Table, names: Collection[str]) -> str | None:
    """Return why the values of the table may be others than those at the time of `text`, or None.

    `text` is what Kafka has, whoever has written it.
    """
    try:
        columns, shape, *tree = json.loads(text)
        before, shape_before = [read_column(values) for values in columns], read_shape(shape)
        types = {column.name: (column.attnum, column.type_oid) for column in before}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "the description of its table does not read"
    if (tree[0] if tree else []) != [*table.ancestors]:
        return f"{table} was attached to a partitioned table or detached"
    for column in table.columns:
        if column.name in names and types.get(column.name) != (column.attnum, column.type_oid):
            return f"column {column.name} of {table} is another one, or has another type"
    why = unseen_change(before, shape_before, table.columns, table.shape, names)
    return None if why is None else f"{table}: {why}"


def is_other_tree(text: str, table: Table) -> bool:
    """Whether a table had other partitions at the time of a `text` that `why_other` accepts.

    One that was detached and attached again, or made UNLOGGED and LOGGED again, is another one:
    nobody may have seen its changes. The same holds for a table that is such a partition itself.
    """
    _, shape, *tree = json.loads(text)
    if not _is_of_tree(table):
        return bool(tree[1:])
    try:
        _, leaves, digest, by_tree = tree
        before = replace(
            table,
            leaves=tuple(leaves),
            tree_digest=digest,
            by_tree=tuple(map(int, by_tree)),
            shape=read_shape(shape),
        )
    except (ValueError, TypeError):  # by another version, or not by a gateway
        return True
    return has_other_partitions(before, table)


def has_other_partitions(before: Table, now: Table) -> bool:
    """Whether a table has other partitions than before, likewise."""
    if (before.leaves, before.tree_digest) != (now.leaves, now.tree_digest):
        return True
    if before.shape is None or now.shape is None:
        return False
    # SET LOGGED writes another file. TRUNCATE and VACUUM FULL do, too, and look the same.
    was, files = before.shape.files, now.shape.files
    suspects = {*before.by_tree, *now.by_tree} & was.keys() & files.keys()
    return any(was[oid] != files[oid] for oid in suspects)


def _is_of_tree(table: Table) -> bool:
    return table.kind == "p" or bool(table.ancestors)


def as_tree_of(before: Table, now: Table) -> Table:
    """Return a table with the partitions that it has now."""
    return replace(
        before,
        leaves=now.leaves,
        tree_digest=now.tree_digest,
        by_tree=now.by_tree,
        shape=now.shape,
    )


def other_trees(before: Mapping[int, Table], plan: Plan) -> set[int]:
    """Return the OIDs of the tables of sub-selects that have other partitions than before.

    Args:
        before: Tables as they were, by OID.
        plan: Current plan.
    """
    clauses = (clause for copy in plan.copies for clause in copy.filters)
    read = {oid for clause in clauses for oid in inner_columns(clause.formula)}
    return {
        oid
        for oid in read & before.keys() & plan.tables.keys()
        if has_other_partitions(before[oid], plan.tables[oid])
    }
