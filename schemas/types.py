"""The table of types, `types.toml`: how the columns of each PostgreSQL type are carried.

The gateway, its compiled row path and the Spark job look up here, once per column, which conversion
and which canonical form of a key a type has; each of them has one function per name.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final, TypeAlias

__all__ = [
    "ARRAY",
    "CHANGES",
    "KEY_FORMS",
    "MILLIS",
    "MOST_ITEMS",
    "NESTED",
    "PARTS",
    "TYPES",
    "VARIANTS",
    "ColumnType",
    "job_logical_type",
    "of_column",
    "of_debezium",
    "of_spark",
    "precision_and_scale",
]

_MOST_DIGITS: Final = 38
"""Largest precision of a decimal that Spark, Flink and Connect support."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnType:
    """An entry of the table: a family of PostgreSQL types that are carried alike.

    There is one object per entry, which equals no other.

    Attributes:
        conversion: Name of the conversion from PostgreSQL's text to the Avro value.
        avro: Avro's primitive type, ``array``, ``map`` or ``record``.
        spark: Type of the Spark job's column, as ``simpleString`` writes it; a ``decimal`` has
            precision and scale besides, and types of several values have those of each.
        names: Names as ``format_type`` prints them without modifiers, and OIDs.
        extension: Names of types of extensions.
        logical: Avro's logicalType; empty without one.
        choice: Setting of ``[types]`` by which columns are carried as text instead; empty without
            one.
        decimal: Whether it is for columns whose precision and scale an Avro decimal can have.
        array: Whether it is for arrays, whose items have an entry of their own.
        record: Name of the Avro record; empty for other types.
        fields: Avro types of the record's fields; that of a ``bound`` is nullable and follows from
            the range.
        items: Avro type of the items of an array that are the same for all columns; else empty.
        bounds: Names of the types of ranges' bounds, by the name of the range.
        ranges: Names of the types of multiranges' ranges, by the name of the multirange.
        variant: Whether the Spark job's column can be VARIANT.
        key: Name of the canonical form of a key column.
        debezium: Names of the semantic types that stand for it in Debezium's records, in
            microseconds, and for Connect's times.
        semantic: Name of the semantic type that it is; empty in all records but Debezium's.
        label: Name of the family in docs/types.md.
        lost: Values that cannot be carried, for the same page.
        note: Remark there.
        changes: Names of the DDL that changes such a column in place, for the same page.
    """

    conversion: str
    avro: str
    spark: str
    names: Mapping[str, int] = field(default_factory=dict)
    extension: tuple[str, ...] = ()
    logical: str = ""
    choice: str = ""
    decimal: bool = False
    array: bool = False
    record: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    items: str = ""
    bounds: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, str] = field(default_factory=dict)
    variant: bool = False
    key: str = "text"
    debezium: tuple[str, ...] = ()
    semantic: str = ""
    label: str = ""
    lost: str = ""
    note: str = ""
    changes: tuple[str, ...] = ()

    @property
    def nested(self) -> bool:
        """Whether a value has parts. Then it is text in a key: consumers compare keys by ``=``."""
        return self.avro in ("array", "map", "record")

    @property
    def has_list(self) -> bool:
        """Whether the number of parts differs by value. Arrays of such values are text.

        Readers bound the parts of all items together.
        """
        return self.avro in ("array", "map") or not {"ints", "floats"}.isdisjoint(
            self.fields.values()
        )

    @property
    def avro_type(self) -> str | dict[str, Any]:
        """A new Avro schema, without a decimal's precision and scale, and without parts."""
        schema = {"type": self.avro, "logicalType": self.logical} if self.logical else self.avro
        if not self.semantic:
            return schema
        # As Connect's Avro converters write a schema's name and version.
        whole = schema if isinstance(schema, dict) else {"type": schema}
        return {**whole, "connect.version": 1, "connect.name": self.semantic}


_Named: TypeAlias = Mapping[str, Mapping[str, str]]


def _read() -> tuple[tuple[ColumnType, ...], Mapping[str, str], int, _Named, _Named]:
    text = resources.files("schemas").joinpath("types.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    types = (
        ColumnType(**{**entry, **{name: tuple(entry.get(name, ())) for name in _LISTS}})
        for entry in table["types"]
    )
    rest = (table[name] for name in ("keys", "most_items", "debezium", "changes"))
    return (tuple(types), *rest)


_LISTS: Final = ("extension", "debezium", "changes")
TYPES, KEY_FORMS, MOST_ITEMS, _SEMANTIC, CHANGES = _read()
"""Entries, the last of which fits every type; a description of each canonical form of a key; the
number of an array's items that readers of the topics accept; Debezium's semantic types; and the DDL
that changes columns in place."""

ARRAY: Final = next(entry for entry in TYPES if entry.array)
"""Entry of all arrays that are carried as such."""

_OIDS: Final = {name: oid for entry in TYPES for name, oid in entry.names.items()}
PARTS: Final = {
    _OIDS[name]: (_OIDS[part], part)
    for entry in TYPES
    for name, part in (*entry.bounds.items(), *entry.ranges.items())
}
"""OID and name of the type of the bounds or ranges, by the OID of a range or a multirange."""

VARIANTS: Final = frozenset(name for entry in TYPES if entry.variant for name in entry.names)
"""Names of types whose columns the Spark job can store as VARIANT."""

NESTED: Final = frozenset(entry.choice for entry in TYPES if entry.nested)
"""Choices of types that are text in keys in any case."""

MILLIS: Final = frozenset({"time-millis", "timestamp-millis"})
"""logicalTypes that cut off microseconds."""

_OTHER: Final = TYPES[-1]


def _by_oid() -> Mapping[int, list[ColumnType]]:
    found: dict[int, list[ColumnType]] = defaultdict(list)
    for entry in TYPES:
        for oid in dict.fromkeys(entry.names.values()):
            found[oid].append(entry)
    return dict(found)


_BY_OID: Final = _by_oid()
_NAMED: Final = {
    (entry.spark, name): entry
    for entry in reversed(TYPES)
    for name in (*entry.names, *entry.extension)
}
_OF_EXTENSIONS: Final = [(name, entry) for entry in TYPES for name in entry.extension]
_VARIANT: Final = ColumnType(conversion="variant", avro="string", spark="variant", variant=True)
_OF_SPARK: Final = {entry.spark: entry for entry in (*reversed(TYPES), ARRAY, _OTHER, _VARIANT)}

_FIELD: Final = "(?:year|month|day|hour|minute|second)"
_MODIFIERS: Final = re.compile(rf"\([^)]*\)| {_FIELD}(?: to {_FIELD})?(?=[(\[]|$)")
"""Additions of ``format_type`` to a name: a length, a precision, the fields of an interval."""


def precision_and_scale(modifier: int) -> tuple[int, int] | None:
    """Return those of a numeric's type modifier, or None if an Avro decimal cannot have them.

    The scale is signed since PostgreSQL 15. Source: numeric_typmod_precision, numeric_typmod_scale
    in numeric.c.
    """
    packed = modifier - 4
    precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
    fits = packed >= 0 and 0 <= scale <= precision <= _MOST_DIGITS
    return (precision, scale) if fits else None


def of_column(
    oid: int, extension: str = "", *, native: Collection[str] = (), modifier: int = -1
) -> ColumnType:
    """Return the entry of a column of the source.

    Args:
        oid: OID of its type, under any domains.
        extension: Name by ``format_type`` of a type that may be one of an extension, else empty.
        native: Choices by which the column is not carried as text.
        modifier: Type modifier, under any domains.
    """
    decimal = precision_and_scale(modifier) is not None
    for entry in _BY_OID.get(oid, ()):
        if (decimal or not entry.decimal) and (not entry.choice or entry.choice in native):
            return entry
    name = _extension_name(extension)
    for known, entry in _OF_EXTENSIONS:
        if known == name and (not entry.choice or entry.choice in native):
            return entry
    return _OTHER


@cache
def of_debezium(entry: ColumnType, *, connect: bool, exact: bool = False) -> ColumnType:
    """Return how a column is carried in Debezium's records, given its entry of the table.

    Args:
        entry: Entry of the column; one without a semantic type is carried as ever.
        connect: Whether times are those of Connect, which have milliseconds.
        exact: Whether they have microseconds all the same: equal keys must be equal values.
    """
    if not entry.debezium:
        return entry
    name = entry.debezium[-1 if connect else 0]
    kind = _SEMANTIC[name]
    if exact and kind.get("logical") in MILLIS:
        return of_debezium(entry, connect=False)
    return replace(
        entry,
        conversion=kind["conversion"],
        avro=kind["avro"],
        logical=kind.get("logical", ""),
        semantic=name,
    )


def job_logical_type(kind: Mapping[str, Any]) -> str | None:
    """Return the logicalType by which the Spark job reads an Avro type.

    None: that of the type itself counts.
    """
    name = kind.get("connect.name")
    found = _SEMANTIC.get(name, {}) if isinstance(name, str) else {}
    return found.get("job") if found.get("avro") == kind.get("type") else None


def of_spark(spark: str, name: str) -> ColumnType:
    """Return the entry of a column of the Spark job.

    Args:
        spark: The column's type, as ``simpleString`` writes it.
        name: PostgreSQL's type, as ``format_type`` writes it. That of a domain does not say what is
            under it, and a column can be wider than its type: then the first entry with the type
            `spark` counts.
    """
    spark, plain = re.split("[(<]", spark, maxsplit=1)[0], _MODIFIERS.sub("", name)
    found = _NAMED.get((spark, plain)) or _NAMED.get((spark, _extension_name(name)))
    return found or _OF_SPARK.get(spark, _OTHER)


@cache  # a table has few types; names come from the catalog or a schema of a topic
def _extension_name(name: str) -> str:
    """Return the name of an extension's type without its schema, which is any; else ``""``."""
    plain = _MODIFIERS.sub("", name).rpartition(".")[2]
    return plain if any(plain == known for known, _ in _OF_EXTENSIONS) else ""
