"""Resolution of filters with sub-selects: their tables, and their plain parts by the server.

A publication cannot have such a filter. Each plain part of it is resolved as a filter on its own
table, by PostgreSQL's rules for row filters (`gateway.source.catalog.filter_text`); on a standby,
which can create nothing, by its planner (`gateway.source.catalog.planned_filters`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg

from gateway.core.errors import FilterError
from gateway.definitions.model import Table, TableClause
from gateway.source.catalog.filter_text import FilterResolver
from gateway.source.catalog.partition_trees import tree_of
from gateway.source.catalog.planned_filters import PlannedFilterResolver
from gateway.source.catalog.tables import FIRST_NORMAL_OID, read_tables
from gateway.source.session.search_path import role_schemas
from gateway.subselects.formula import Formula, Plain, resolved
from gateway.subselects.text.identity import check_identities
from gateway.subselects.text.normalise import normalise
from gateway.subselects.text.scope import InnerTable

__all__ = ["SubselectResolver"]

_FIND: Final = f"""
    SELECT c.oid, c.relkind::pg_catalog.text, c.relpersistence::pg_catalog.text,
        EXISTS (
            {tree_of("c.oid")}
            SELECT FROM tree AS t
            WHERE t.oid IN (c.oid, CASE c.relkind WHEN 'p' THEN t.oid END)
                AND pg_catalog.row_security_active(t.oid)),
        c.relkind = 'r' AND EXISTS (
            SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid),
        c.relkind = 'p' AND EXISTS (
            {tree_of("c.oid")}
            SELECT FROM tree AS t JOIN pg_catalog.pg_class AS l ON l.oid = t.oid
            WHERE l.relkind NOT IN ('r', 'p') OR l.relpersistence <> 'p')
    FROM pg_catalog.unnest(%s::pg_catalog.text[]) WITH ORDINALITY AS s (name, nr)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid
    WHERE c.relname = %s ORDER BY s.nr LIMIT 1"""  # noqa: S608


class SubselectResolver:
    """Resolves the filters of one definitions text over one connection, inside its transaction.

    Args:
        connection: The connection.
        text: Text of the definitions, for errors.
        filters: Resolver of plain filters, without a text; None for the one that the server needs.

    Attributes:
        tables: Tables of the sub-selects that were resolved, by OID.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], text: str, filters: FilterResolver | None = None
    ) -> None:
        self._connection = connection
        self._text = text
        self._filters = filters
        self._resolved: dict[tuple[int, str], str] = {}
        self.tables: dict[int, Table] = {}

    def resolve(self, clause: TableClause, table: Table) -> Formula:
        """Return the formula of the filter of `clause`, on `table`.

        Raises:
            FilterError: it cannot be followed exactly, or the server refuses a part of it; with the
                position.
            AccessError, TransientError: see `FilterResolver.resolve`.
        """
        assert clause.where is not None
        position = clause.where_position
        formula = normalise(
            clause.where,
            table,
            self._find,
            text=None if position is None else self._text,
            offset=position or 0,
        )
        tables = {**self.tables, table.oid: table}
        formula = resolved(formula, table.oid, self._resolve_on(tables))
        check_identities(formula, table, tables, None if position is None else self._text)
        return formula

    def _resolver(self) -> FilterResolver:
        """Return the resolver of plain filters; errors get their positions here, and no text."""
        if self._filters is None:
            row = self._connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
            assert row is not None
            kind = PlannedFilterResolver if row[0] else FilterResolver
            self._filters = kind(self._connection, "")
        return self._filters

    def _resolve_on(self, tables: dict[int, Table]) -> Callable[[int, Plain], str]:
        def resolve(oid: int, plain: Plain) -> str:
            found = self._resolved.get((oid, plain.text))
            if found is None:
                table = tables[oid]
                part = TableClause(table.schema, table.name, where=plain.text)
                try:
                    found = self._resolver().resolve(part, table)
                except FilterError as error:
                    raise FilterError(
                        error.message, text=self._text, position=plain.position, hint=error.hint
                    ) from None
                self._resolved[oid, plain.text] = found
            return found

        return resolve

    def _find(self, schema: str | None, name: str) -> InnerTable | str:
        """Return the table of a sub-select's FROM, or why it cannot be one."""
        written = name if schema is None else f"{schema}.{name}"
        schemas = [schema] if schema is not None else list(role_schemas(self._connection))
        if schema is None and "pg_catalog" not in schemas:
            schemas.insert(0, "pg_catalog")
        row = self._connection.execute(_FIND, (schemas, name)).fetchone()
        if row is None:
            return f'relation "{written}" does not exist'
        oid, kind, persistence, row_security, inherited, unlogged = row
        if oid < FIRST_NORMAL_OID or kind not in "rp" or persistence != "p":
            return f'"{written}" is not a table whose changes are in the stream'
        if oid not in self.tables:
            self.tables |= read_tables(self._connection, [oid])
        return InnerTable(self.tables[oid], row_security, inherited, unlogged)
