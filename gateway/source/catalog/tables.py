"""Descriptions of tables in the source database: columns, identity, partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

from gateway.definitions.model import Collation, Column, Element, Parent, Table
from gateway.definitions.tables.labels import bounded
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.source.catalog.partition_trees import tree_of
from gateway.source.catalog.shape_queries import read_shapes
from gateway.source.session.server_errors import classify_server_error

__all__ = [
    "describe_column",
    "describe_table",
    "estimated_rows",
    "existing_relations",
    "read_parents",
    "read_shaped_tables",
    "read_tables",
    "read_tables_by_oid",
]

FIRST_NORMAL_OID: Final = 16384
"""Objects below are the system's own. Source: FirstNormalObjectId in transam.h."""

_DEFAULT_COLLATION: Final = 100

# Where a table is in the trees around it: the transactions that have attached it and them.
_PLACE: Final = """
            SELECT pg_catalog.string_agg((
                SELECT pg_catalog.concat_ws(',', m.inhrelid, m.inhparent, m.xmin)
                FROM pg_catalog.pg_inherits AS m
                WHERE m.inhrelid = a.relid AND NOT m.inhdetachpending), ';' ORDER BY a.nr)
            FROM pg_catalog.pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, nr)"""
_IS_NAMED: Final = """EXISTS (
                SELECT FROM pg_catalog.pg_publication_rel AS r
                JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
                JOIN pg_catalog.pg_roles AS o ON o.oid = p.pubowner
                WHERE r.prrelid = $oid AND o.rolname = current_user)"""
_TABLES: Final = (
    """
    SELECT c.oid, n.nspname, c.relname, c.relkind::pg_catalog.text,
        c.relreplident::pg_catalog.text,
        CASE WHEN c.relispartition THEN ARRAY(
            SELECT relid::pg_catalog.oid
            FROM pg_catalog.pg_partition_ancestors(c.oid) WITH ORDINALITY AS a(relid, nr)
            WHERE relid <> c.oid ORDER BY nr) ELSE '{}' END,
        CASE WHEN c.relkind = 'p' THEN ARRAY(
            $tree
            SELECT l.oid FROM tree AS t JOIN pg_catalog.pg_class AS l ON l.oid = t.oid
            WHERE l.relkind = 'r' AND l.relpersistence = 'p' ORDER BY l.oid) ELSE '{}' END,
        CASE WHEN c.relkind = 'p' THEN pg_catalog.md5(pg_catalog.concat_ws('/', (
            $tree
            SELECT pg_catalog.string_agg(
                pg_catalog.concat_ws(',', m.inhrelid, m.inhparent, m.xmin), ';'
                ORDER BY m.inhrelid)
            FROM tree AS t JOIN pg_catalog.pg_inherits AS m ON m.inhparent = t.oid
            WHERE NOT m.inhdetachpending), ($place)))
        WHEN c.relispartition THEN pg_catalog.md5(($place)) END,
        CASE WHEN c.relkind = 'p' THEN ARRAY(
            $tree
            SELECT l.oid FROM tree AS t JOIN pg_catalog.pg_class AS l ON l.oid = t.oid
            WHERE l.relkind = 'r' AND NOT $leaf_is_named
            ORDER BY l.oid)
        WHEN c.relispartition AND NOT $is_named THEN ARRAY[c.oid] ELSE '{}' END
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s) AND c.relkind IN ('r', 'p')
    ORDER BY n.nspname, c.relname""".replace("$tree", tree_of("c.oid"))
    .replace("$place", _PLACE)
    .replace("$leaf_is_named", _IS_NAMED.replace("$oid", "l.oid"))
    .replace("$is_named", _IS_NAMED.replace("$oid", "c.oid"))
)

_PARENTS: Final = """
    SELECT i.inhrelid, i.inhparent, n.nspname || '.' || p.relname
    FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    JOIN pg_catalog.pg_class AS p ON p.oid = i.inhparent
    JOIN pg_catalog.pg_namespace AS n ON n.oid = p.relnamespace
    WHERE c.relkind IN ('r', 'f') AND NOT c.relispartition ORDER BY i.inhrelid, i.inhseqno"""

_COLUMNS: Final = """
    SELECT a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
        a.attgenerated::pg_catalog.text, a.attcollation, a.attlen = -1 AND a.attstorage <> 'p',
        (a.attmissingval::pg_catalog.text::pg_catalog.text[])[1],
        NOT a.atthasmissing AND (a.atthasdef OR a.attidentity <> '')
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum"""

_KEYS: Final = """
    SELECT i.indrelid, i.indisprimary, i.indisreplident, ARRAY(
        SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY(
            (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1])
        ORDER BY a.attnum)
    FROM pg_catalog.pg_index AS i
    WHERE i.indrelid = ANY(%s) AND (i.indisprimary OR i.indisreplident)
        AND i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL"""

_TYPES: Final = """
    WITH RECURSIVE walk(type_oid, base_oid, base_modifier) AS (
        SELECT t.oid, t.typbasetype, t.typtypmod FROM pg_catalog.pg_type AS t
        WHERE t.oid = ANY(%(types)s) AND t.typtype = 'd'
      UNION ALL
        SELECT w.type_oid, t.typbasetype, t.typtypmod
        FROM walk AS w JOIN pg_catalog.pg_type AS t ON t.oid = w.base_oid WHERE t.typtype = 'd')
    SELECT t.oid, t.typtype::pg_catalog.text, t.typcollation, w.base_oid, w.base_modifier,
        CASE WHEN b.typtype = 'b' THEN pg_catalog.format_type(b.oid, w.base_modifier) ELSE '' END,
        pg_catalog.format_type(t.oid, NULL), e.oid, ARRAY(
            SELECT l.enumlabel::pg_catalog.text FROM pg_catalog.pg_enum AS l
            WHERE l.enumtypid = coalesce(w.base_oid, t.oid) ORDER BY l.enumsortorder)
    FROM pg_catalog.pg_type AS t
    LEFT JOIN (walk AS w JOIN pg_catalog.pg_type AS b ON b.oid = w.base_oid AND b.typtype <> 'd')
        ON w.type_oid = t.oid
    LEFT JOIN (pg_catalog.pg_type AS a JOIN pg_catalog.pg_type AS e
            ON e.oid = a.typelem AND e.typarray = a.oid AND e.typdelim = ',')
        ON a.oid = coalesce(w.base_oid, t.oid)
    WHERE t.oid = ANY(%(types)s)"""

_Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class _TypeRow:
    """A type in the catalog.

    Attributes:
        base_oid: OID of the type under any domains; None if it is no domain.
        base_modifier: Modifier that the domains give it; None if it is no domain.
        base_name: Name of the base type; empty if it is no domain over one.
        name: Name without modifiers.
        element_oid: OID of the type of the items, if the base type is an array; else None.
        labels: Labels of the base type, if it is an enum, and a schema can show them.
    """

    kind: str
    collation: int
    base_oid: int | None
    base_modifier: int | None
    base_name: str
    name: str
    element_oid: int | None
    labels: tuple[str, ...]


class _Types:
    """Types by OID, with those of the items of arrays."""

    def __init__(self, connection: _Connection, oids: set[int]) -> None:
        self.rows = _read_types(connection, oids)
        found = (row.element_oid for row in self.rows.values())
        elements = {oid for oid in found if oid is not None}
        self._elements = _read_types(connection, elements) if elements else {}

    def described(self, type_oid: int, modifier: int) -> dict[str, Any]:
        """Return the attributes of a column that follow from its type and modifier."""
        row = self.rows[type_oid]
        modifier = modifier if row.base_modifier is None else row.base_modifier
        return {
            "base_type_oid": type_oid if row.base_oid is None else row.base_oid,
            "base_type_modifier": modifier,
            "type_kind": row.kind,
            "element": self._element(row.element_oid, modifier),
            "base_type_name": self._base_name_of_array(row.element_oid) or row.base_name,
            "labels": row.labels or self._labels_of_items(row.element_oid),
        }

    def _labels_of_items(self, oid: int | None) -> tuple[str, ...]:
        return () if oid is None or oid not in self._elements else self._elements[oid].labels

    def _base_name_of_array(self, oid: int | None) -> str:
        name = "" if oid is None or oid not in self._elements else self._elements[oid].base_name
        return name and f"{name}[]"

    def _element(self, oid: int | None, modifier: int) -> Element | None:
        if oid is None or oid not in self._elements:
            return None
        row = self._elements[oid]
        return Element(
            oid if row.base_oid is None else row.base_oid,
            modifier if row.base_modifier is None else row.base_modifier,
            row.base_name or row.name,
            "b" if row.base_name else row.kind,
        )


def read_tables_by_oid(connection: _Connection, oids: Iterable[int]) -> dict[int, Table]:
    """Describe the tables and partitioned tables among `oids`; others are left out.

    Raises:
        psycopg.Error: the server refuses, or is gone.

    Source: RelationGetIndexList in relcache.c for the identity, getBaseTypeAndTypmod in
    lsyscache.c for domains.
    """
    # Type names are printed in full: they must not depend on the session's search_path.
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        return _read_tables(connection, sorted(set(oids)))


def _read_tables(connection: _Connection, wanted: list[int]) -> dict[int, Table]:
    tables = connection.execute(_TABLES, (wanted,)).fetchall()
    columns, toast = _read_columns(connection, wanted)
    primary: dict[int, tuple[str, ...]] = {}
    chosen: dict[int, tuple[str, ...]] = {}
    for relation, is_primary, is_identity, names in connection.execute(_KEYS, (wanted,)):
        if is_primary:
            primary[relation] = tuple(names)
        if is_identity:
            chosen[relation] = tuple(names)
    result = {}
    for oid, schema, name, kind, identity, ancestors, leaves, digest, by_tree in tables:
        replica_identity = ReplicaIdentity(identity)
        result[oid] = Table(
            oid=oid,
            schema=schema,
            name=name,
            kind=kind,
            columns=tuple(columns[oid]),
            replica_identity=replica_identity,
            identity=_identity(
                replica_identity, columns[oid], primary.get(oid, ()), chosen.get(oid, ())
            ),
            primary_key=primary.get(oid, ()),
            ancestors=tuple(ancestors),
            leaves=tuple(leaves),
            may_toast=frozenset(toast[oid]),
            tree_digest=digest or "",
            by_tree=tuple(by_tree),
        )
    return result


def _read_columns(
    connection: _Connection, wanted: list[int]
) -> tuple[Mapping[int, list[Column]], Mapping[int, set[str]]]:
    rows = connection.execute(_COLUMNS, (wanted,)).fetchall()
    types = _Types(connection, {row[3] for row in rows})
    collations = _read_collations(connection, {row[8] for row in rows})
    columns: dict[int, list[Column]] = defaultdict(list)
    toast: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        relation, name, number, type_oid, modifier, shown, not_null, generated, coll = row[:9]
        long, missing, computed = row[9:]
        columns[relation].append(
            Column(
                name=name,
                attnum=number,
                type_oid=type_oid,
                type_modifier=modifier,
                type_name=shown,
                **types.described(type_oid, modifier),
                not_null=not_null,
                generated=generated,
                collation=collations.get(coll),
                missing=missing,
                computed=computed,
            )
        )
        if long and generated != "v":
            toast[relation].add(name)
    return columns, toast


def read_tables(connection: _Connection, oids: Iterable[int]) -> dict[int, Table]:
    """Describe tables, and the ancestors and leaves of all of them, with their shapes.

    A tree that was dropped meanwhile is no longer an ancestor: its partition was detached before.
    """
    tables = read_shaped_tables(connection, oids)
    while True:
        more = {
            oid for table in tables.values() for oid in (*table.ancestors, *table.leaves)
        } - tables.keys()
        if not more:
            return tables
        found = read_shaped_tables(connection, more)
        if not found:
            return {
                oid: replace(table, ancestors=tuple(a for a in table.ancestors if a in tables))
                for oid, table in tables.items()
            }
        tables |= found


def read_shaped_tables(connection: _Connection, oids: Iterable[int]) -> dict[int, Table]:
    """Describe tables as `read_tables_by_oid` does, with their shapes.

    The shapes are read last: what changes in between, they have already, and the columns show it.
    """
    tables = read_tables_by_oid(connection, oids)
    shapes = read_shapes(connection, tables)
    return {oid: replace(table, shape=shapes.get(oid)) for oid, table in tables.items()}


def read_parents(connection: _Connection) -> dict[int, tuple[Parent, ...]]:
    """Return the tables from which each table inherits that is no partition, by OID.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    parents: dict[int, tuple[Parent, ...]] = {}
    for oid, parent, name in connection.execute(_PARENTS):
        parents[oid] = (*parents.get(oid, ()), Parent(parent, name))
    return parents


def describe_table(connection: _Connection, oid: int) -> Table | None:
    """Describe one table as it is now, or return None when it is gone."""
    return read_tables_by_oid(connection, [oid]).get(oid)


def existing_relations(connection: _Connection, oids: Iterable[int]) -> set[int]:
    """Return those of `oids` under which there is a relation now.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        found = connection.execute(
            "SELECT oid FROM pg_catalog.pg_class WHERE oid = ANY (%s)", (sorted(set(oids)),)
        )
        return {row[0] for row in found}
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="looking for tables") from None


def estimated_rows(connection: _Connection) -> dict[tuple[str, str], int]:
    """Return the number of rows of each table, by schema and name, as the server's statistics say.

    Those of a partitioned table are its leaves'. Tables without statistics are left out.
    """
    rows = connection.execute(
        "SELECT n.nspname, c.relname, (CASE WHEN c.relkind = 'r' THEN nullif(c.reltuples, -1)"  # noqa: S608
        f" ELSE ({tree_of('c.oid')} SELECT pg_catalog.sum(l.reltuples) FROM tree AS t"
        " JOIN pg_catalog.pg_class AS l ON l.oid = t.oid"
        " WHERE l.relkind <> 'p' AND l.reltuples >= 0) END)::bigint"
        " FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND c.oid >= %s",
        (FIRST_NORMAL_OID,),
    )
    return {(schema, name): found for schema, name, found in rows if found is not None}


def describe_column(
    connection: _Connection, name: str, type_oid: int, type_modifier: int
) -> Column | None:
    """Describe a column of which only name and type are left; its `attnum` is 0.

    None: the type is gone as well.
    """
    types = _Types(connection, {type_oid})
    if type_oid not in types.rows:
        return None
    collation = types.rows[type_oid].collation
    shown = connection.execute(
        "SELECT pg_catalog.format_type(%s, %s)", (type_oid, type_modifier)
    ).fetchone()
    assert shown is not None
    return Column(
        name=name,
        attnum=0,
        type_oid=type_oid,
        type_modifier=type_modifier,
        type_name=shown[0],
        **types.described(type_oid, type_modifier),
        not_null=False,
        generated="",
        collation=_read_collations(connection, {collation}).get(collation),
    )


def _identity(
    kind: ReplicaIdentity,
    columns: Sequence[Column],
    primary: tuple[str, ...],
    chosen: tuple[str, ...],
) -> tuple[str, ...]:
    match kind:
        case ReplicaIdentity.DEFAULT:
            return primary
        case ReplicaIdentity.INDEX:
            return chosen
        case ReplicaIdentity.FULL:
            return tuple(column.name for column in columns if not column.generated)
        case ReplicaIdentity.NOTHING:
            return ()


def _read_types(connection: _Connection, oids: Collection[int]) -> dict[int, _TypeRow]:
    rows = connection.execute(_TYPES, {"types": sorted(oids)})
    return {oid: _TypeRow(*[*others, bounded(labels)]) for oid, *others, labels in rows}


def _read_collations(connection: _Connection, oids: set[int]) -> dict[int, Collation]:
    oids = oids - {0}
    if not oids:
        return {}
    version = connection.info.server_version
    # datlocprovider is new in 15, the builtin provider and the column datlocale in 17.
    provider = "datlocprovider::pg_catalog.text" if version >= 150000 else "'c'"
    locale = "datlocale" if version >= 170000 else "NULL"
    database = connection.execute(
        f"SELECT {provider}, datcollate::pg_catalog.text, {locale},"  # noqa: S608
        " pg_catalog.pg_encoding_to_char(encoding)"
        " FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()".encode()
    ).fetchone()
    assert database is not None
    # Code points sort as the bytes of their UTF-8 do; those of other encodings need not.
    ordered = database[3] in ("UTF8", "LATIN1")
    locale = "colllocale" if version >= 170000 else "NULL"
    rows = connection.execute(
        "SELECT c.oid,"  # noqa: S608
        " pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname),"
        f" c.collprovider::pg_catalog.text, c.collcollate::pg_catalog.text, {locale},"
        " c.collisdeterministic FROM pg_catalog.pg_collation AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.collnamespace"
        " WHERE c.oid = ANY(%s)".encode(),
        (sorted(oids),),
    )
    result = {}
    for oid, name, kind, collate, own_locale, deterministic in rows:
        if oid == _DEFAULT_COLLATION:
            c_order = ordered and _sorts_by_code_point(*database[:3])
            result[oid] = Collation("default", True, c_order)
        else:
            c_order = ordered and _sorts_by_code_point(kind, collate, own_locale)
            result[oid] = Collation(name, deterministic, c_order)
    return result


def _sorts_by_code_point(provider: str, collate: str | None, locale: str | None) -> bool:
    if provider == "b":  # all locales of the builtin provider: C, C.UTF-8, PG_UNICODE_FAST
        return locale in ("C", "C.UTF-8", "PG_UNICODE_FAST")
    return provider == "c" and collate in ("C", "POSIX")
