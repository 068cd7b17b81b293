"""Row filters as a standby understands and prints them: without anything being created.

The planner of a standby resolves an expression as its primary does, and EXPLAIN prints it, with
every cast and every bracket, constant parts computed and NOT of a comparison turned around. It
does not apply the rules for row filters: the expression may have only the nodes that a row filter
may have, and the gateway has to evaluate the text itself
(`gateway.routing.build.followed_tables.unfollowed`), which knows immutable functions only.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import sql

from gateway.core.errors import FilterError
from gateway.definitions.model import Table, TableClause
from gateway.definitions.sql.expression import refuse_nodes
from gateway.source.catalog.filter_text import RENDERING_SETTINGS, FilterResolver

__all__ = ["PlannedFilterResolver"]

_OF_ROWS: Final = frozenset({"Seq Scan", "Index Only Scan", "Index Scan", "Result"})
"""Plans of an expression of one row; aggregates and sets of rows need others."""
_PLANNER: Final = (
    "SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0;"
    "SET LOCAL constraint_exclusion = off"
)


class PlannedFilterResolver(FilterResolver):
    """Resolves filters over a connection to a standby, inside its transaction."""

    def _ask(self, clause: TableClause, table: Table) -> str:
        assert clause.where is not None
        if (why := refuse_nodes(clause.where)) is not None:
            raise self._fault(clause, why)
        with self._classified(clause, table):
            return self._ask_planner(clause, table)

    def _ask_planner(self, clause: TableClause, table: Table) -> str:
        with self._connection.transaction(force_rollback=True):
            self._keep_types(table)
            self._connection.execute(f"{RENDERING_SETTINGS};{_PLANNER}")
            name = sql.Identifier(table.schema, table.name)
            end = sql.SQL(") FROM ONLY {}").format(name).as_string(self._connection)
            kind = self._create(sql.SQL("SELECT ("), clause, f"{end} LIMIT 0").description
            if kind is None or kind[0].type_display != "bool":
                raise self._fault(clause, "argument of PUBLICATION WHERE must be type boolean")
            explain = sql.SQL("EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) SELECT (")
            row = self._create(explain, clause, end).fetchone()
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        if plan["Node Type"] not in _OF_ROWS:
            raise self._fault(clause, "only expressions of the row are allowed")
        (text,) = plan["Output"]
        return str(text)

    def _fault(self, clause: TableClause, why: str) -> FilterError:
        return FilterError(
            "invalid publication WHERE expression",
            text=self._text,
            position=clause.where_position,
            hint=why,
            detail=why,
        )
