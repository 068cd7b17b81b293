"""Watch for changes in the source database that affect how subscriptions publish its tables.

It looks at intervals while the gateway runs, with one query and no lock. A digest only shows that
something is different; the change is found by reading the catalog again.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from gateway.definitions.model import Definitions, Plan
from gateway.source.session.search_path import role_schemas
from gateway.source.session.server_errors import classify_server_error

__all__ = ["CatalogWatch", "whole_digest"]

_PUBLICATIONS: Final = """
    SELECT 'p', p.oid::text, p.xmin::text, p.pubname::text FROM pg_catalog.pg_publication AS p
    WHERE p.pubname = ANY (%(names)s)
  UNION ALL
    SELECT 'r', r.oid::text, r.xmin::text, r.prrelid::text
    FROM pg_catalog.pg_publication_rel AS r
    JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid WHERE p.pubname = ANY (%(names)s)
  UNION ALL
    SELECT 'e', e.oid::text, e.evtenabled::text, e.evtname::text
    FROM pg_catalog.pg_event_trigger AS e WHERE e.evtname LIKE 'pgsluice\\_%%'
  UNION ALL
    SELECT 'f', f.oid::text, f.xmin::text, f.proname::text
    FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
    WHERE n.nspname = 'pgsluice'
  UNION ALL
    SELECT 'k', k.oid::text, k.relacl::text, n.nspacl::text
    FROM pg_catalog.pg_class AS k JOIN pg_catalog.pg_namespace AS n ON n.oid = k.relnamespace
    WHERE n.nspname = 'pgsluice' AND k.relname = 'key'"""

_NAMESPACES: Final = """
  UNION ALL
    SELECT 'n', n.oid::text, n.xmin::text, n.pnnspid::text
    FROM pg_catalog.pg_publication_namespace AS n
    JOIN pg_catalog.pg_publication AS p ON p.oid = n.pnpubid WHERE p.pubname = ANY (%(names)s)"""

# A partition that is being detached counts as one no longer, and one that was detached and attached
# again as another one.
_TABLES: Final = """
  UNION ALL
    SELECT 'i', i.inhrelid::text, i.inhparent::text,
        pg_catalog.concat_ws(' ', pg_catalog.to_jsonb(i) ->> 'inhdetachpending', i.xmin)
    FROM pg_catalog.pg_inherits AS i WHERE {inhparent}
  UNION ALL
    SELECT 'c', c.oid::text, c.relreplident::text, c.relnamespace::text || '.' || c.relname
    FROM pg_catalog.pg_class AS c WHERE {oid}
  UNION ALL
    SELECT 'x', x.indexrelid::text, x.indisreplident::text, x.indisprimary::text
    FROM pg_catalog.pg_index AS x
    WHERE {indrelid} AND (x.indisprimary OR x.indisreplident)
  UNION ALL
    SELECT 'a', a.attrelid::text, a.attnum::text || '.' || a.attname,
        pg_catalog.concat_ws(' ', a.atttypid, a.attacl)
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = ANY (%(held)s) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT 'w', c.oid::text, pg_catalog.concat_ws(' ', c.relowner, c.relrowsecurity, c.relacl),
        n.nspacl::text
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = ANY (%(held)s)
  UNION ALL
    SELECT 'm', c.oid::text, n.nspname::text, c.relname::text
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname || '.' || c.relname = ANY (%(missing)s)
  UNION ALL
    SELECT 't', c.oid::text, c.relname::text, c.relispartition::text
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
        AND (%(everything)s OR n.nspname = ANY (%(schemas)s))"""


# A table above one of the plan can have masks that are for it, and needs not be published.
_ABOVE: Final = """
    WITH RECURSIVE above(oid) AS (
        SELECT pg_catalog.unnest(%s::pg_catalog.oid[])
      UNION
        SELECT i.inhparent
        FROM above AS a JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = a.oid)
    SELECT oid FROM above"""

_LISTED: Final = {
    "inhparent": "i.inhparent = ANY (%(tables)s)",
    "oid": "c.oid = ANY (%(tables)s)",
    "indrelid": "x.indrelid = ANY (%(tables)s)",
}
_ALL: Final = {
    "inhparent": "i.inhparent >= 16384",
    "oid": "c.oid >= 16384 AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'",
    "indrelid": "x.indrelid >= 16384",
}


def whole_digest(connection: psycopg.Connection[Any], definitions: Definitions) -> str:
    """Return a text that differs when anything has changed that a `CatalogWatch` checks.

    It covers all tables, because it is read before the plan.

    Raises:
        TransientError: the connection is gone.
    """
    return _digest(connection, definitions, None)


class CatalogWatch:
    """Watch for changes of the catalog that a plan depends on, between two looks.

    It covers the publications of the database that a subscription names, and whether the stream
    reports how they are altered; tables of the schemas and databases that are published as a whole;
    partitions, names and replica identities of the tables of the plan; tables that bear the names
    of those that are missing; columns and rights of those that are held; with masks, the tables
    above those of the plan.

    Args:
        before: Result of `whole_digest` before the plan was read.
    """

    def __init__(self, definitions: Definitions, before: str) -> None:
        self._definitions = definitions
        self._before = before
        self._digest = ""

    @property
    def is_new(self) -> bool:
        """Whether no look has been made yet."""
        return not self._digest

    def has_changed(self, connection: psycopg.Connection[Any], plan: Plan) -> bool:
        """Whether anything has changed since the last look, at first since `before`.

        That first look is one at all tables, which costs much less than reading the plan of many
        publications again. It may say so without need: another table may have changed, or one is
        held, of which columns count.

        Raises:
            TransientError: the connection is gone.
        """
        now = _digest(connection, self._definitions, plan)
        changed = (
            bool(plan.held) or whole_digest(connection, self._definitions) != self._before
            if self.is_new
            else now != self._digest
        )
        self._digest = now
        return changed


def _digest(
    connection: psycopg.Connection[Any], definitions: Definitions, plan: Plan | None
) -> str:
    defined = {publication.name for publication in definitions.publications}
    named = {n for s in definitions.subscriptions for n in s.publications} - defined
    namespaces = _NAMESPACES if connection.info.server_version >= 150000 else ""
    held = sorted(set() if plan is None else {table.oid for table in plan.held})
    tables = _TABLES.format_map(_ALL if plan is None else _LISTED)
    watched = {*({} if plan is None else plan.tables), *held}
    try:
        if definitions.masks and plan is not None:
            watched.update(oid for (oid,) in connection.execute(_ABOVE, (sorted(watched),)))
        everything, schemas = _wholes(connection, definitions, sorted(named))
        row = connection.execute(
            "SELECT pg_catalog.md5(pg_catalog.string_agg(line, ';' ORDER BY line)) FROM ("  # noqa: S608
            " SELECT pg_catalog.concat_ws(',', a, b, c, d)"
            f" FROM ({_PUBLICATIONS}{namespaces}{tables}) AS f (a, b, c, d)) AS g (line)".encode(),
            {
                "names": sorted(named),
                "tables": sorted(watched),
                "held": held,
                "everything": everything or plan is None,
                "schemas": schemas,
                "missing": []
                if plan is None
                else [f"{schema}.{name}" for schema, name, _ in plan.missing],
            },
        ).fetchone()
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="watching the catalog") from None
    assert row is not None
    return str(row[0])


def _wholes(
    connection: psycopg.Connection[Any], definitions: Definitions, named: list[str]
) -> tuple[bool, list[str]]:
    """Whether all tables are published, and the schemas that are."""
    everything = any(publication.all_tables for publication in definitions.publications)
    schemas: set[str] = set()
    for publication in definitions.publications:
        for schema in publication.schemas:
            if schema is None:
                schema = next(iter(role_schemas(connection)), "")
            schemas.add(schema)
    for (all_tables,) in connection.execute(
        "SELECT puballtables FROM pg_catalog.pg_publication WHERE pubname = ANY (%s)", (named,)
    ):
        everything = everything or all_tables
    if connection.info.server_version >= 150000:
        rows = connection.execute(
            "SELECT s.nspname FROM pg_catalog.pg_publication_namespace AS n"
            " JOIN pg_catalog.pg_namespace AS s ON s.oid = n.pnnspid"
            " JOIN pg_catalog.pg_publication AS p ON p.oid = n.pnpubid WHERE p.pubname = ANY (%s)",
            (named,),
        )
        schemas |= {str(name) for (name,) in rows}
    return everything, sorted(schemas)
