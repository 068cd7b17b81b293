"""Columns for filters: a table with one of each kind."""

from __future__ import annotations

from gateway.definitions.model import Collation, Column
from gateway.pgtypes.catalog import TYPES

UNORDERED = Collation("default", deterministic=True, c_order=False)
C = Collation('pg_catalog."C"', deterministic=True, c_order=True)
LOOSE = Collation('public."loose"', deterministic=False, c_order=False)


def column(name: str, kind: str, collation: Collation | None = None, generated: str = "") -> Column:
    oid = TYPES[kind][0] if kind in TYPES else 16400
    return Column(
        name=name,
        attnum=1,
        type_oid=oid,
        type_modifier=-1,
        type_name=kind,
        base_type_oid=oid,
        base_type_modifier=-1,
        type_kind="b",
        not_null=False,
        generated=generated,
        collation=collation,
    )


COLUMNS = (
    column("a", "int4"),
    column("b", "int4"),
    column("c", "text", UNORDERED),
    column("t", "text", C),
    column("loose", "text", LOOSE),
    column("p", "bpchar", C),
    column("z", "bool"),
    column("n", "numeric"),
    column("f", "float8"),
    column("d", "date"),
    column("tz", "timestamptz"),
    column("u", "uuid"),
    column("j", "xml"),
    column("own", "own_type"),
    column("virtual", "int4", generated="v"),
    column("Été", "int4"),
)
NAMES = tuple(column.name for column in COLUMNS)


def row(**values: bytes | None) -> tuple[bytes | None, ...]:
    """A tuple of the table; what is not named is NULL."""
    assert values.keys() <= set(NAMES)
    return tuple(values.get(name) for name in NAMES)
