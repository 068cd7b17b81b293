"""Detection, in the catalog, of table changes that no Relation message reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import psycopg

from gateway.definitions.model import Plan, Table
from gateway.definitions.moving import inner_oids
from gateway.definitions.tables.inner import other_trees
from gateway.definitions.tables.labels import has_new_labels
from gateway.definitions.tables.shape import unseen_changes
from gateway.source.catalog.shape_queries import shapes_digest
from gateway.source.catalog.tables import read_shaped_tables
from gateway.source.session.server_errors import classify_server_error

__all__ = ["ShapeWatch", "has_unseen_changes"]

_Connection = psycopg.Connection[Any]


def has_unseen_changes(connection: _Connection, plan: Plan, targets: Collection[int]) -> bool:
    """Whether `targets` of `plan` have changed in a way that the stream does not show.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        tables = read_shaped_tables(connection, targets)
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="looking at columns") from None
    after = _with_tables(plan, tables)
    return bool(unseen_changes(plan.tables, after) or other_trees(plan.tables, after))


class ShapeWatch:
    """Watch for changes of the copied tables of a plan that no Relation message reports.

    They give rows other values, an enum other labels, or a tree of a filter other partitions.
    """

    def __init__(self) -> None:
        self._digest = ""
        self._tables: Mapping[int, Table] | None = None

    def has_changed(self, connection: _Connection, plan: Plan) -> bool:
        """Whether anything has changed since the last look, at first since the plan was read.

        Raises:
            TransientError: the connection is gone.
        """
        targets = {copy.target_oid for copy in plan.copies}
        targets.update(*(inner_oids(copy.filters) for copy in plan.copies))
        try:
            digest = shapes_digest(connection, targets)
            if digest == self._digest:
                return False
            tables = read_shaped_tables(connection, targets)
        except psycopg.Error as error:
            text = error.diag.message_primary or str(error)
            raise classify_server_error(error.sqlstate, text, doing="watching columns") from None
        before = plan.tables if self._tables is None else self._tables
        self._digest, self._tables = digest, tables
        after = _with_tables(plan, tables)
        other = bool(unseen_changes(before, after) or other_trees(before, after))
        return other or has_new_labels(before, after)


def _with_tables(plan: Plan, tables: Mapping[int, Table]) -> Plan:
    copies = tuple(copy for copy in plan.copies if copy.target_oid in tables)
    return replace(plan, tables={**tables}, copies=copies)
