"""Columns that decide, outside and inside, and the replica identity that must have them. Pure.

Only columns of the replica identity are logged of a row that was: without them nobody knows what a
deleted row has counted for.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.errors import FilterError
from gateway.definitions.identity import identity_gap
from gateway.definitions.model import Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.subselects.formula import Formula, columns_of, set_tests_of

__all__ = ["check_identities"]

_DETAIL = "Column used in the publication WHERE expression is not part of the replica identity."


def check_identities(
    formula: Formula, table: Table, tables: Mapping[int, Table], text: str | None
) -> None:
    """Check that every column that decides is logged of the rows that were.

    Args:
        formula: Filter on `table`.
        table: Table that it filters.
        tables: Tables by OID, with those of all sub-selects.
        text: Text of the definitions, for positions.

    Raises:
        FilterError: a replica identity lacks one, or a table has none, or no key.
    """
    if table.replica_identity is ReplicaIdentity.FULL and not table.primary_key:
        position = next((test.position for test in set_tests_of(formula)), None)
        raise FilterError(
            f"a row filter over other tables: {table} has no key, and rows that enter or leave are "
            "named by their keys",
            text=text,
            position=position,
            hint=f"give {table.sql} a primary key",
        )
    _check(formula, table, tables, text, None)


def _check(
    formula: Formula | None,
    table: Table,
    tables: Mapping[int, Table],
    text: str | None,
    position: int | None,
    inner: tuple[str, ...] = (),
) -> None:
    # Rows of a partitioned table have the identity of their partition.
    is_tree = table.kind == "p" and bool(inner)
    gap = None if is_tree else identity_gap(table)
    missing = set() if is_tree else (columns_of(formula) | set(inner)) - set(table.identity)
    if gap is not None or missing:
        found = min(missing) if gap is None else ""
        at = (
            position
            if position is not None
            else next((test.position for test in set_tests_of(formula)), None)
        )
        raise FilterError(
            f"a row filter over other tables: column {found} of {table} is not part of the replica "
            "identity"
            if found
            else f"a row filter over other tables: {table}: {gap}",
            text=text,
            position=at,
            hint=f"{_DETAIL} ALTER TABLE {table.sql} REPLICA IDENTITY FULL lets a filter use any "
            "column.",
            detail=_DETAIL,
        )
    for test in set_tests_of(formula):
        inside = test.subselect
        _check(inside.filter, tables[inside.table_oid], tables, text, test.position, inside.columns)
