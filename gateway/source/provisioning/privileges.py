"""Privileges of the gateway's role on single tables: to read them, and to publish them.

A table of another owner is no reason to publish nothing: `gateway.runtime.planning.table_checks`
holds it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.core.errors import HeldCause
from gateway.core.identifiers import one_line
from gateway.definitions.model import Fault
from gateway.source.session.server_errors import classify_server_error

__all__ = ["OwnPublications", "own_publications", "why_unreadable"]

_Connection = psycopg.Connection[Any]

# Without a privilege on the schema no table in it can be named.
_UNREADABLE: Final = """
SELECT c.oid::bigint, pg_catalog.quote_ident(n.nspname), pg_catalog.quote_ident(c.relname),
       pg_catalog.quote_ident(current_user::pg_catalog.text),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_table_privilege(c.oid, 'SELECT')
         OR NOT EXISTS (
           SELECT FROM pg_catalog.pg_attribute AS a
           WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0
             AND NOT a.attisdropped
             AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'))
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""
_ROW_SECURITY: Final = """
SELECT c.oid::bigint FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
  AND pg_catalog.row_security_active(c.oid)
"""
_PUBLICATIONS: Final = """
SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user),
       ARRAY(SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p
             WHERE p.pubname OPERATOR(pg_catalog.=) ANY (%(names)s::pg_catalog.name[])),
       ARRAY(SELECT p.pubname::pg_catalog.text FROM pg_catalog.pg_publication AS p
             WHERE p.pubname OPERATOR(pg_catalog.=) ANY (%(names)s::pg_catalog.name[])
               AND pg_catalog.pg_has_role(p.pubowner, 'USAGE'))
"""
_FOREIGN: Final = """
SELECT c.oid::bigint FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
  AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
"""


def why_unreadable(connection: _Connection, oids: Collection[int]) -> dict[int, Fault]:
    """Return why the session's role cannot copy tables, by OID, in PostgreSQL's words.

    Raises:
        TransientError: the connection is gone.
    """
    if not oids:
        return {}
    found: dict[int, Fault] = {}
    wanted = [sorted(oids)]
    try:
        secured = {oid for (oid,) in connection.execute(_ROW_SECURITY, wanted)}
        for row in connection.execute(_UNREADABLE, wanted):
            oid, schema, name, role, may_use, may_read = row
            use = f"GRANT USAGE ON SCHEMA {schema} TO {role}"
            select = f"GRANT SELECT ON {schema}.{name} TO {role}"
            reasons, statements, by_hand = [], [], []
            if not may_use:
                reasons.append(f"permission denied for schema {schema}")
                statements.append(one_line(use))
            elif not may_read:
                reasons.append(f"permission denied for table {schema}.{name}")
            if not may_read:
                statements.append(one_line(select))
            if oid in secured:
                reasons.append(f"row security hides rows of {schema}.{name} from role {role}")
                by_hand.append(one_line(f"ALTER ROLE {role} BYPASSRLS"))
            if reasons:
                why = "; ".join(reasons)
                cause: HeldCause = "grant" if statements else "bypass_rls"
                found[oid] = Fault(why, tuple(statements), tuple(by_hand), always=True, cause=cause)
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="reading privileges") from None
    return found


@dataclass(frozen=True, slots=True)
class OwnPublications:
    """Privileges of the session's role on the gateway's own publications.

    Attributes:
        existing: Names of existing publications.
        unowned: Names of existing publications that the role may not alter.
        foreign: OIDs of the given tables that the role may not add to one.
        may_create: Whether the role may create the missing ones.
    """

    existing: frozenset[str]
    unowned: frozenset[str]
    foreign: frozenset[int]
    may_create: bool


def own_publications(
    connection: _Connection, names: Collection[str], oids: Collection[int]
) -> OwnPublications:
    """Return the role's privileges on the publications of `names`, and on tables.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(_PUBLICATIONS, {"names": sorted(names)}).fetchone()
        assert row is not None
        may_create, is_superuser, existing, owned = row
        foreign: frozenset[int] = frozenset()
        if not is_superuser:
            foreign = frozenset(o for (o,) in connection.execute(_FOREIGN, [sorted(oids)]))
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="reading privileges") from None
    return OwnPublications(
        frozenset(existing), frozenset(existing).difference(owned), foreign, may_create
    )
