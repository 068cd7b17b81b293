"""Queries of table shapes: column properties that Relation messages lack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

import psycopg

from gateway.definitions.model import Shape
from gateway.source.catalog.partition_trees import tree_of

__all__ = ["read_shapes", "shapes_digest"]

_Connection = psycopg.Connection[Any]

_FILES: Final = f"""
SELECT t.oid, l.oid, l.relfilenode
FROM pg_catalog.unnest(%(tables)s::pg_catalog.oid[]) AS t (oid)
JOIN pg_catalog.pg_class AS r ON r.oid = t.oid
CROSS JOIN LATERAL (
    SELECT r.oid WHERE r.relkind <> 'p'
    UNION ALL
    ({tree_of("r.oid")} SELECT t.oid FROM tree AS t WHERE r.relkind = 'p')) AS leaf (oid)
JOIN pg_catalog.pg_class AS l ON l.oid = leaf.oid AND l.relkind = 'r'
"""  # noqa: S608
_COLUMNS: Final = """
SELECT a.attrelid, a.attnum, a.xmin::pg_catalog.text, pg_catalog.left(pg_catalog.md5(
    (pg_catalog.to_jsonb(a) - 'attmissingval')::pg_catalog.text), 8)
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = ANY (%(tables)s::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
"""
# Values of an enum in the order in which they were made; the attributes of a composite type as one.
_TYPES: Final = """
WITH RECURSIVE walk (relation, number, type) AS (
    SELECT a.attrelid, a.attnum, a.atttypid FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = ANY (%(tables)s::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid >= 16384
  UNION
    SELECT w.relation, w.number, part.type
    FROM walk AS w JOIN pg_catalog.pg_type AS t ON t.oid = w.type
    CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL
        SELECT r.rngsubtype FROM pg_catalog.pg_range AS r
        WHERE r.rngtypid = t.oid OR r.rngmultitypid = t.oid
        UNION ALL
        SELECT s.atttypid FROM pg_catalog.pg_attribute AS s
        WHERE t.typrelid <> 0 AND s.attrelid = t.typrelid AND s.attnum > 0 AND NOT s.attisdropped
    ) AS part (type) WHERE part.type >= 16384)
SELECT w.relation, w.number, t.oid::pg_catalog.text, CASE t.typtype
    WHEN 'e' THEN ARRAY(
        SELECT pg_catalog.left(pg_catalog.md5(e.enumlabel), 8) FROM pg_catalog.pg_enum AS e
        WHERE e.enumtypid = t.oid ORDER BY e.oid)
    ELSE ARRAY(
        SELECT pg_catalog.md5(coalesce(pg_catalog.string_agg(pg_catalog.concat_ws(
            ',', s.attnum, s.atttypid, s.atttypmod), ';' ORDER BY s.attnum), ''))
        FROM pg_catalog.pg_attribute AS s
        WHERE s.attrelid = t.typrelid AND s.attnum > 0 AND NOT s.attisdropped) END
FROM walk AS w JOIN pg_catalog.pg_type AS t ON t.oid = w.type WHERE t.typtype IN ('e', 'c')
UNION ALL
SELECT a.attrelid, a.attnum, 'collation', ARRAY[coalesce(c.collversion, '')]
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation
WHERE a.attrelid = ANY (%(tables)s::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
AND NOT c.collisdeterministic
"""


def read_shapes(connection: _Connection, oids: Collection[int]) -> dict[int, Shape]:
    """Return the shapes of those of `oids` that are tables or partitioned tables.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    wanted = {"tables": sorted(oids)}
    files: dict[int, dict[int, int]] = defaultdict(dict)
    for oid, leaf, file in connection.execute(_FILES, wanted):
        files[oid][leaf] = file
    columns: dict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for oid, number, xmin, content in connection.execute(_COLUMNS, wanted):
        columns[oid][number] = (xmin, content)
    types: dict[int, dict[int, dict[str, tuple[str, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for oid, number, name, parts in connection.execute(_TYPES, wanted):
        types[oid][number][name] = tuple(parts)
    return {oid: Shape(files[oid], found, types[oid]) for oid, found in columns.items()}


def shapes_digest(connection: _Connection, oids: Collection[int]) -> str:
    """Return a text that differs when one of the shapes does.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    lines = " UNION ALL ".join(
        f"SELECT pg_catalog.concat_ws(',', {columns}) FROM ({query}) AS {name} (a, b, c{more})"  # noqa: S608
        for name, query, columns, more in (
            ("f", _FILES, "'f', a, b, c", ""),
            ("c", _COLUMNS, "'c', a, b, c, d", ", d"),
            ("t", _TYPES, "'t', a, b, c, d", ", d"),
        )
    )
    query = (
        "SELECT pg_catalog.md5(pg_catalog.string_agg(line, ';' ORDER BY line))"  # noqa: S608
        f" FROM ({lines}) AS g (line)"
    )
    row = connection.execute(query.encode(), {"tables": sorted(oids)}).fetchone()
    assert row is not None
    return str(row[0])
