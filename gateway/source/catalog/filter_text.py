"""Row filters as the source server itself understands and prints them.

A filter is never interpreted here: the server parses it in the session that defines it, resolves
every type, cast and operator, and prints it back. Whatever is created for that is rolled back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import psycopg
from psycopg import sql

from gateway.core.display import shown
from gateway.core.errors import AccessError, FilterError, GatewayError, TransientError
from gateway.definitions.model import Catalog, Definitions, Table, TableClause
from gateway.definitions.sql.expression import column_names, select_where
from gateway.definitions.sql.foreign_code import first_reference, foreign_name, has_part_of
from gateway.source.catalog.locked_tables import (
    NEXT_LOCK_TIMEOUT,
    REMEMBERED_LOCK_TIMEOUT,
    RememberedFilters,
    TableLockedError,
    locked,
)
from gateway.source.catalog.node_tree import (
    FIRST_NORMAL_OID,
    ONLY_BUILT_IN,
    FilterFault,
    Node,
    Value,
    find_fault,
    function_oids,
    parse_node_tree,
)
from gateway.source.session.connection import SEARCH_PATH
from gateway.source.session.server_errors import classify_server_error, read_only

__all__ = ["RENDERING_SETTINGS", "FilterResolver", "refuse_generated_columns"]

RENDERING_SETTINGS: Final = (
    f"SET LOCAL search_path = {SEARCH_PATH};"
    "SET LOCAL DateStyle = 'ISO'; SET LOCAL TimeZone = 'UTC';"
    "SET LOCAL IntervalStyle = 'postgres'; SET LOCAL extra_float_digits = 3;"
    "SET LOCAL bytea_output = 'hex'; SET LOCAL quote_all_identifiers = off"
)
"""Under these an expression is printed so that it reads the same everywhere."""

_PUBLICATION_FILTER: Final = """
    SELECT pg_catalog.pg_get_expr(r.prqual, r.prrelid)
    FROM pg_catalog.pg_publication_rel AS r JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
    WHERE p.pubname = %s"""

_VIEW_QUERY: Final = """
    SELECT r.ev_action::pg_catalog.text, pg_catalog.pg_get_viewdef(r.ev_class)
    FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = %s::pg_catalog.regclass"""


_CHECK_QUERY: Final = """
    SELECT pg_catalog.pg_get_expr(k.conbin, k.conrelid)
    FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
    WHERE k.contype = 'c' AND c.relname = %s AND c.relnamespace = pg_catalog.pg_my_temp_schema()"""

_MAY_LOCK: Final = "SELECT pg_catalog.has_table_privilege(%s::pg_catalog.oid, 'SELECT')"
_MAY_MAKE_VIEWS: Final = (
    "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')"
)
_TYPES: Final = """
    SELECT ARRAY(SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped)"""

_PLAIN_VIEWS_SINCE: Final = 160000

_remembered: Final = RememberedFilters()


class FilterResolver:
    """Resolves the filters of one definitions text over one connection, inside its transaction.

    If the role may create publications on the table (and the server is 15 or later), the server
    judges the filter by a publication that is rolled back; elsewhere by a temporary view that is
    rolled back, and the rules for row filters are applied here.
    """

    def __init__(self, connection: psycopg.Connection[Any], text: str) -> None:
        self._connection = connection
        self._text = text
        self._by_publication = connection.info.server_version >= 150000
        self._prefix_length = 0
        self._is_remembered = False

    def resolve(self, clause: TableClause, table: Table) -> str:
        """Return the server's own rendering of the filter of `clause`, on `table`.

        Raises:
            FilterError: the server, or its rules for row filters, refuse it; with the position.
            AccessError: the role may not even create a temporary view.
            TableLockedError: a lock could not be had in time.
            TransientError: the table was altered meanwhile, or the connection is gone.
        """
        self._refuse_user_types(clause, table)
        # Only the shape of the table decides beside the filter and who judges it.
        version = self._connection.info.server_version
        key = (type(self), version, self._by_publication, table, clause.where)
        self._is_remembered = key in _remembered
        try:
            found = self._ask(clause, table)
        except TableLockedError:
            if not self._is_remembered:
                raise
            return _remembered[key]
        _remembered.remember(key, found)
        return found

    def _ask(self, clause: TableClause, table: Table) -> str:
        if self._by_publication:
            try:
                return self._ask_publication(clause, table)
            except psycopg.errors.InsufficientPrivilege:
                pass
            except psycopg.errors.ReadOnlySqlTransaction:
                raise read_only(
                    self._connection,
                    f"the filter on {table} cannot be tried out",
                    on_standby="create the publication on its primary, and leave only the "
                    "subscriptions in the definitions file",
                ) from None
            except psycopg.errors.LockNotAvailable:
                if self._is_remembered:
                    raise locked(self._connection, table.oid, str(table)) from None
                return self._ask_without_publication(clause, table)
            except psycopg.Error as error:
                raise self._refusal(error, clause, self._prefix_length) from None
        with self._classified(clause, table):
            return self._ask_view(clause, table)

    def _ask_without_publication(self, clause: TableClause, table: Table) -> str:
        """Ask by a view, which VACUUM and CREATE INDEX CONCURRENTLY do not block for hours.

        Raises:
            TableLockedError: a lock blocks that as well, or the role may not do it.
        """
        self._connection.execute(NEXT_LOCK_TIMEOUT)
        try:
            return self._ask_view(clause, table)
        except (psycopg.Error, FilterError):
            raise locked(self._connection, table.oid, str(table)) from None

    @contextmanager
    def _classified(self, clause: TableClause, table: Table) -> Iterator[None]:
        """Raise the server's errors about a filter as those of `resolve`."""
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._denial(error.diag.message_primary, clause, table) from None
        except psycopg.errors.LockNotAvailable:
            raise locked(self._connection, table.oid, str(table)) from None
        except psycopg.Error as error:
            raise self._refusal(error, clause, self._prefix_length) from None

    def _denial(self, message: str | None, clause: TableClause, table: Table) -> GatewayError:
        """Return the error for a filter for which the role lacks a right, in the server's words."""
        why = f"the server does not let this role resolve the filter on {table}: {message}"
        row = self._connection.execute(_MAY_MAKE_VIEWS).fetchone()
        if row is not None and not row[0]:
            return AccessError(
                why, hint="grant TEMPORARY on the database to the role of [source].dsn"
            )
        return FilterError(
            why,
            text=self._text,
            position=clause.where_position,
            hint="grant the role of [source].dsn what it lacks",
            cause="privilege",
        )

    def _refuse_user_types(self, clause: TableClause, table: Table) -> None:
        """Refuse what PostgreSQL refuses, before it reads a literal as a value of such a type."""
        assert clause.where is not None
        users = {c.name for c in table.columns if c.type_oid >= FIRST_NORMAL_OID}
        offset = first_reference(clause.where, users)
        if offset is None and foreign_name(clause.where, types_only=True) is None:
            return
        position = clause.where_position
        if position is not None and offset is not None:
            position += len(clause.where.encode()[:offset].decode(errors="ignore"))
        part = offset is not None and has_part_of(clause.where, users)
        detail = ONLY_BUILT_IN if part else "User-defined types are not allowed."
        raise FilterError(
            "invalid publication WHERE expression",
            text=self._text,
            position=position,
            hint=detail,
            detail=detail,
        )

    def _keep_types(self, table: Table) -> None:
        """Lock the table where the role may, so that no column gets such a type meanwhile."""
        if self._is_remembered:
            self._connection.execute(REMEMBERED_LOCK_TIMEOUT)
        row = self._connection.execute(_MAY_LOCK, (table.oid,)).fetchone()
        if row is not None and row[0]:
            name = sql.Identifier(table.schema, table.name)
            self._connection.execute(
                sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(name)
            )
        row = self._connection.execute(_TYPES, (table.oid,)).fetchone()
        if row is None or sorted(row[0]) != sorted(column.type_oid for column in table.columns):
            raise TransientError(f"{table} was altered while a filter on it was looked at")

    def _ask_publication(self, clause: TableClause, table: Table) -> str:
        name = f"pgsluice_{secrets.token_hex(8)}"
        with self._connection.transaction(force_rollback=True):
            self._keep_types(table)
            self._create(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE ONLY {} WHERE (").format(
                    sql.Identifier(name), sql.Identifier(table.schema, table.name)
                ),
                clause,
                ") WITH (publish_via_partition_root = true)",
            )
            self._connection.execute(RENDERING_SETTINGS)
            row = self._connection.execute(_PUBLICATION_FILTER, (name,)).fetchone()
            assert row is not None
            return str(row[0])

    def _ask_view(self, clause: TableClause, table: Table) -> str:
        name = f"pgsluice_{secrets.token_hex(8)}"
        with self._connection.transaction(force_rollback=True):
            self._keep_types(table)
            self._create(
                sql.SQL("CREATE TEMPORARY VIEW {} AS SELECT 1 FROM ONLY {} WHERE (").format(
                    sql.Identifier(name), sql.Identifier(table.schema, table.name)
                ),
                clause,
                ")",
            )
            row = self._connection.execute(_VIEW_QUERY, (f"pg_temp.{name}",)).fetchone()
            assert row is not None
            self._check(parse_node_tree(row[0]), clause, table)
            by_check = self._connection.info.server_version < _PLAIN_VIEWS_SINCE
            if by_check:  # after the rules for row filters: CHECK has rules of its own
                self._add_check(clause, table)
            self._connection.execute(RENDERING_SETTINGS)
            if not by_check:
                row = self._connection.execute(_VIEW_QUERY, (f"pg_temp.{name}",)).fetchone()
                assert row is not None
                return select_where(row[1])
            row = self._connection.execute(_CHECK_QUERY, (table.name,)).fetchone()
            assert row is not None
            return str(row[0])

    def _add_check(self, clause: TableClause, table: Table) -> None:
        """Put the filter on an empty copy of the table, where columns are shown by plain names.

        Before 16 a view has hidden relations for its rules, and shows every column as table.column.
        """
        copy = sql.Identifier("pg_temp", table.name)  # its own name: the filter may use it
        self._connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {})").format(
                copy, sql.Identifier(table.schema, table.name)
            )
        )
        self._create(sql.SQL("ALTER TABLE {} ADD CHECK (").format(copy), clause, ")")

    def _create(
        self, prefix: sql.Composable, clause: TableClause, suffix: str
    ) -> psycopg.Cursor[Any]:
        """Run a statement with the filter in it; errors in the filter keep their position."""
        assert clause.where is not None
        before = prefix.as_string(self._connection)
        self._prefix_length = len(before)
        # The line break ends a comment that the filter may end with.
        return self._connection.execute(f"{before}{clause.where}\n{suffix}".encode())

    def _check(self, tree: Value, clause: TableClause, table: Table) -> None:
        qualification = _qualification(tree)
        functions = function_oids(qualification)
        rows = self._connection.execute(
            "SELECT oid, provolatile::pg_catalog.text FROM pg_catalog.pg_proc WHERE oid = ANY(%s)",
            (sorted(functions),),
        )
        volatility: dict[int, str] = dict(rows.fetchall())
        fault = find_fault(qualification, volatility)
        if fault is not None:
            raise FilterError(
                "invalid publication WHERE expression",
                text=self._text,
                position=self._position(clause, fault),
                hint=fault.detail,
                detail=fault.detail,
            )
        virtual = {column.attnum for column in table.columns if column.generated == "v"}
        if virtual & _columns(qualification):
            raise FilterError(
                f"not supported for this role: the filter on {table} uses a virtual column",
                text=self._text,
                position=clause.where_position,
                hint="make the role of [source].dsn owner of the table, or use another column",
            )

    def _position(self, clause: TableClause, fault: FilterFault) -> int | None:
        """Return the position of a fault, or None, as servers from 17 on store no offsets."""
        assert clause.where is not None
        if clause.where_position is None:
            return None
        inside = fault.location - self._prefix_length
        if not 0 <= inside < len(clause.where.encode()):
            return clause.where_position
        return clause.where_position + len(clause.where.encode()[:inside].decode(errors="ignore"))

    def _refusal(self, error: psycopg.Error, clause: TableClause, before: int) -> GatewayError:
        diag = error.diag
        if error.sqlstate is None or error.sqlstate[:2] in ("53", "55", "57", "58", "08"):
            return classify_server_error(
                error.sqlstate, diag.message_primary or str(error), doing="resolving a row filter"
            )
        message = (diag.message_primary or "").replace(
            "argument of WHERE must be", "argument of PUBLICATION WHERE must be"
        )
        position = clause.where_position
        if diag.statement_position is not None and position is not None:
            assert clause.where is not None
            inside = int(diag.statement_position) - 1 - before
            position += min(max(inside, 0), len(clause.where))
        details = [shown(part) for part in (diag.message_detail, diag.message_hint) if part]
        return FilterError(
            message,
            text=self._text,
            position=position,
            hint=" ".join(details) or None,
            detail=diag.message_detail,
            cause="column" if error.sqlstate == "42703" else "",
        )


def _qualification(tree: Value) -> Value:
    """Return the WHERE expression of the query of a view."""
    query = cast("Node", tree[0] if isinstance(tree, list) else tree)
    jointree = query.fields["jointree"]
    assert isinstance(jointree, Node)
    return jointree.fields["quals"]


def _columns(value: Value) -> set[int]:
    """Return the numbers of the columns that an expression reads."""
    if isinstance(value, list):
        return set().union(*(_columns(item) for item in value))
    if not isinstance(value, Node):
        return set()
    if value.name == "VAR":
        return {value.number("varattno")}
    return set().union(*(_columns(item) for item in value.fields.values()))


def refuse_generated_columns(catalog: Catalog, definitions: Definitions) -> None:
    """Refuse filters on generated columns, which servers before 18 evaluate, but never send.

    Raises:
        FilterError: with the position, where the filter is written in the definitions.

    Source: logicalrep_write_tuple in proto.c (17 and earlier).
    """
    for publication in catalog.publications.values():
        for relation in publication.relations:
            table = catalog.tables[relation.table_oid]
            generated = {column.name for column in table.columns if column.generated}
            if relation.where is None or relation.formula is not None:
                continue  # one that reads other tables has none in any release
            if generated.isdisjoint(column_names(relation.where)):
                continue
            clause = relation.clause
            raise FilterError(
                f"not supported before PostgreSQL 18: the row filter of publication "
                f"{publication.name} for {table} reads a generated column, which the server does "
                "not send",
                text=None if clause is None else definitions.text,
                position=None if clause is None else clause.where_position,
                hint="write the generation expression into the filter instead of the column",
            )
