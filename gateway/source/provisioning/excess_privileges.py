"""Unneeded privileges of the gateway's role, and code that reading a table could run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import psycopg

from gateway.core.display import counted
from gateway.source.session.server_errors import classify_server_error

__all__ = ["excess_rights", "planned_code"]

_ATTRIBUTES: Final = """
    SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_catalog.pg_roles
    WHERE rolname = current_user"""

_ROLES: Final = """
    SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_roles AS r
    WHERE r.rolname = ANY ('{pg_read_server_files,pg_write_server_files,pg_execute_server_program,
        pg_read_all_data,pg_write_all_data,pg_signal_backend,pg_maintain}')
        AND pg_catalog.pg_has_role(r.oid, 'USAGE') ORDER BY 1"""

_TABLES: Final = """
    SELECT pg_catalog.count(*) FILTER (
            WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') AND c.oid <> ALL (%(published)s)),
        pg_catalog.count(*) FILTER (
            WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
            AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')),
        pg_catalog.count(*) FILTER (
            WHERE c.oid <> ALL (%(published)s) AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
            AND pg_catalog.has_table_privilege(c.oid, 'SELECT'))
    FROM pg_catalog.pg_class AS c
    WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384"""

# Functions of a superuser, and the role's own, do not count as foreign.
_CODE: Final = """
    WITH expressions (relid, classid, objid, what) AS (
        SELECT i.indrelid, 'pg_catalog.pg_class'::pg_catalog.regclass, i.indexrelid,
            'index ' || c.relname
        FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = ANY (%(tables)s)
      UNION ALL
        SELECT s.stxrelid, 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass, s.oid,
            'statistics ' || s.stxname
        FROM pg_catalog.pg_statistic_ext AS s WHERE s.stxrelid = ANY (%(tables)s)
      UNION ALL
        SELECT k.conrelid, 'pg_catalog.pg_constraint'::pg_catalog.regclass, k.oid,
            'constraint ' || k.conname
        FROM pg_catalog.pg_constraint AS k
        WHERE k.conrelid = ANY (%(tables)s) AND k.contype = 'c'
      UNION ALL
        SELECT p.partrelid, 'pg_catalog.pg_class'::pg_catalog.regclass, p.partrelid,
            'the partition key'
        FROM pg_catalog.pg_partitioned_table AS p WHERE p.partrelid = ANY (%(tables)s))
    SELECT e.relid, e.what, f.oid::pg_catalog.regprocedure::pg_catalog.text, r.rolname
    FROM expressions AS e
    JOIN pg_catalog.pg_depend AS d ON d.classid = e.classid AND d.objid = e.objid
        AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
    JOIN pg_catalog.pg_proc AS f ON f.oid = d.refobjid AND f.oid >= 16384
    JOIN pg_catalog.pg_roles AS r ON r.oid = f.proowner
    WHERE NOT r.rolsuper AND r.rolname <> current_user
    ORDER BY 1, 2, 3"""


def excess_rights(connection: psycopg.Connection[Any], published: Collection[int]) -> list[str]:
    """Return privileges of the role that copies and the stream of `published` (OIDs) do not need.

    Ownership of published tables is not among them: an owner can make the gateway's publications.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        attributes = connection.execute(_ATTRIBUTES).fetchone()
        if attributes is not None and attributes[0]:
            return ["it is a superuser"]
        found = [
            text
            for has, text in zip(
                (attributes or ())[1:], ("it may make roles", "it may make databases"), strict=False
            )
            if has
        ]
        found += [f"it is a member of {name}" for (name,) in connection.execute(_ROLES)]
        row = connection.execute(_TABLES, {"published": sorted(published)}).fetchone()
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing="reading rights") from None
    assert row is not None
    for number, text in zip(
        row,
        (
            "it owns {} not published",
            "it may write to {}",
            "it may read {} not published",
        ),
        strict=True,
    ):
        if number:
            found.append(text.format(counted(number, "table")))
    return found


def planned_code(
    connection: psycopg.Connection[Any], tables: Collection[int]
) -> list[tuple[int, str, str, str]]:
    """Return functions of other roles in expressions that the planner of a SELECT evaluates.

    It does so with calls whose arguments are constants, with the rights of the reading role.

    Returns:
        For each, the table's OID, the object with the expression, the function, and its owner.

    Raises:
        TransientError: the connection is gone.

    Source: RelationGetIndexExpressions in relcache.c, get_relation_info in plancat.c.
    """
    try:
        rows = connection.execute(_CODE, {"tables": sorted(tables)}).fetchall()
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing="reading indexes") from None
    return [(oid, what, function, owner) for oid, what, function, owner in rows]
