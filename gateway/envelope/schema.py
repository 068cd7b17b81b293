"""A table as Avro: which type each column becomes, and the schemas of key and value.

The schemas depend on the table, its published columns and its key alone, never on a subscription
or a topic, so that a row which many subscriptions take is encoded once. schemas/envelope.avsc and
schemas/envelope-key.avsc are what `describe` makes of the manual's table t1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from gateway.core.errors import SchemaError
from gateway.core.names import avro_name
from gateway.definitions.model import Element
from gateway.definitions.tables.keys import KeyColumns, identifies, record_key
from gateway.definitions.tables.labels import shown_labels
from gateway.envelope.value_schemas import key_properties, value_schema
from schemas.settings.tables import TYPE_CHOICES, ChosenColumns, Envelope, TypesTable
from schemas.types import (
    ARRAY,
    NESTED,
    PARTS,
    ColumnType,
    of_column,
    of_debezium,
    precision_and_scale,
)

__all__ = [
    "ColumnLike",
    "Field",
    "KeyKind",
    "TableSchema",
    "describe",
    "has_choice",
    "is_nested",
]

_TYPES: Final = TypesTable()
_ENVELOPE: Final = Envelope()
_CHOSEN: Final = ChosenColumns()
_MOST_FRACTION: Final = 6
"""Digits after the point of a timestamp without a precision."""
_ARRAYS: Final = {f"{one}s": {"type": "array", "items": one} for one in ("int", "float")}


class ColumnLike(Protocol):
    """Properties of a column that a schema depends on; see `gateway.definitions.model.Column`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def type_oid(self) -> int: ...  # noqa: D102
    @property
    def type_modifier(self) -> int: ...  # noqa: D102
    @property
    def type_name(self) -> str: ...  # noqa: D102
    @property
    def base_type_oid(self) -> int: ...  # noqa: D102
    @property
    def base_type_modifier(self) -> int: ...  # noqa: D102
    @property
    def type_kind(self) -> str: ...  # noqa: D102
    @property
    def attnum(self) -> int: ...  # noqa: D102
    @property
    def missing(self) -> str | None: ...  # noqa: D102
    @property
    def computed(self) -> bool: ...  # noqa: D102
    @property
    def element(self) -> Element | None: ...  # noqa: D102
    @property
    def base_type_name(self) -> str: ...  # noqa: D102
    @property
    def base_name(self) -> str: ...  # noqa: D102
    @property
    def labels(self) -> tuple[str, ...]: ...  # noqa: D102


class KeyKind(Enum):
    """Kinds of record keys."""

    COLUMNS = "columns"
    """Columns that identify a row: at least those of the primary key or the identity's index."""
    GROUP = "group"
    """Columns of ``[topics.keys]`` that several rows can share."""
    WHOLE_ROW = "whole row"
    """REPLICA IDENTITY FULL without a primary key: every column, each may be NULL."""
    NONE = "none"
    """No replica identity: records have no key."""


@dataclass(frozen=True, slots=True)
class Field:
    """A published column as a field of record ``Value``.

    Attributes:
        name: The Avro name.
        type: How the type under any domains is carried.
        precision: Precision of a decimal; else 0.
        scale: Scale of a decimal; digits after the point of a ``zoned_timestamp``; else 0.
        item: Items of an array, bounds of a range, or ranges of a multirange, without a name; else
            None.
    """

    column: str
    name: str
    type: ColumnType
    precision: int = 0
    scale: int = 0
    item: Field | None = None

    @property
    def values(self) -> int:
        """Number of Avro values that a value as an item of an array consists of."""
        return 1 + len(self.type.fields)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A published table, or some of its columns, as Avro.

    Attributes:
        fields: One per published column, in the order that was given.
        key_fields: The fields of the key record in its order; empty without a key.
        has_nullable_key: Whether fields of the key record can be null.
        partition_fields: The fields that choose the partition, in their order; empty without such.
        place_fields: The fields whose change by an UPDATE is a delete and an insert in the topic.
        value_schema: Schema of record ``Envelope`` or ``Row``. Not to be changed.
        key_schema: Schema of record ``Key``, or None. Not to be changed.
    """

    schema: str
    table: str
    fields: tuple[Field, ...]
    key_kind: KeyKind
    key_fields: tuple[Field, ...]
    has_nullable_key: bool
    partition_fields: tuple[Field, ...]
    place_fields: tuple[Field, ...]
    value_schema: dict[str, Any]
    key_schema: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def describe(
    table_schema: str,
    table_name: str,
    columns: Sequence[ColumnLike],
    key: KeyColumns = None,
    *,
    types: TypesTable = _TYPES,
    envelope: Envelope = _ENVELOPE,
    chosen: ChosenColumns = _CHOSEN,
) -> TableSchema:
    """Build the Avro schemas of a table.

    Args:
        table_schema: The PostgreSQL schema the table is published under.
        table_name: The table.
        columns: The published columns, in table order. Those of the key are text if nested, and
            never lose microseconds: equal records would be those of different rows.
        key: Columns that identify a row, see `gateway.definitions.tables.keys.key_of`; among
            `columns`.
        types: Which columns are carried as text.
        envelope: Format of the values. Debezium never has a time as text, so that in its format it
            is text only where `types` names the column.
        chosen: Columns chosen for the record key and the partition.

    Raises:
        SchemaError: a column twice, a key column that is not published, or a column whose name the
            format needs.
    """
    where = f"{table_schema}.{table_name}"
    native = {c.name: types.native_of(f"{where}.{c.name}", envelope.always) for c in columns}
    in_key = {c.name: native[c.name] - NESTED for c in columns}
    keyed = {*(key or ()), *chosen.key}
    fields = tuple(
        _field(
            c,
            (in_key if c.name in keyed else native)[c.name],
            envelope,
            exact=key == () or c.name in keyed,
        )
        for c in columns
    )
    by_column = {field.column: field for field in fields}
    if len(by_column) != len(fields):
        raise SchemaError(f"{where}: a column is named twice")
    named = dict.fromkeys((*(key or ()), *chosen.key, *chosen.partition))
    if missing := [name for name in named if name not in by_column]:
        raise SchemaError(
            f"{where}: key columns are not published: {', '.join(missing)}",
            hint="add them to the publication's column list",
        )
    of_record = record_key(key, chosen)
    key_kind = KeyKind.NONE
    key_fields: tuple[Field, ...] = ()
    if of_record == ():
        key_kind = KeyKind.WHOLE_ROW
        key_fields = tuple(_field(c, in_key[c.name], envelope, exact=True) for c in columns)
    elif of_record is not None:
        key_kind = KeyKind.COLUMNS if identifies(key, chosen) else KeyKind.GROUP
        key_fields = tuple(by_column[name] for name in of_record)
    is_nullable = not set(of_record or ()) <= set(key or ()) or of_record == ()
    partition_fields = tuple(by_column[name] for name in chosen.partition) or key_fields
    place_fields = key_fields
    if chosen.key or chosen.partition:
        place_fields = fields if key == () else tuple(by_column[name] for name in named)
    namespace = f"pgsluice.{avro_name(table_schema)}.{avro_name(table_name)}"
    labels = shown_labels(columns)
    properties = {c.name: _properties(c, labels.get(c.name, ())) for c in columns}
    key_schema = None
    if key_fields:
        key_schema = _key_schema(namespace, key_fields, is_nullable=is_nullable)
        key_schema |= key_properties(namespace, envelope)
    values = value_schema(namespace, _columns(namespace, fields, properties), envelope)
    if of_record != key:
        values["pg_identity"] = [by_column[name].name for name in key or ()]
    return TableSchema(
        schema=table_schema,
        table=table_name,
        fields=fields,
        key_kind=key_kind,
        key_fields=key_fields,
        has_nullable_key=is_nullable,
        partition_fields=partition_fields,
        place_fields=place_fields,
        value_schema=values,
        key_schema=key_schema,
    )


def _field(
    column: ColumnLike,
    native: Collection[str],
    envelope: Envelope = _ENVELOPE,
    *,
    exact: bool = False,
) -> Field:
    name = avro_name(column.name)
    if column.element is not None and ARRAY.choice in native:
        item = _typed("", "", column.element, native, envelope, exact)
        if not item.type.has_list:
            return Field(column.name, name, ARRAY, item=item)
    modifier = column.base_type_modifier if column.type_kind == "d" else column.type_modifier
    base = column.base_name
    kind = Element(column.base_type_oid, modifier, base, "b" if base else column.type_kind)
    return _typed(column.name, name, kind, native, envelope, exact)


def _typed(
    column: str,
    name: str,
    kind: Element,
    native: Collection[str],
    envelope: Envelope,
    exact: bool,
) -> Field:
    """Return the field of a column, of an array's items, of bounds or ranges; it is no array."""
    extension = kind.type_name if kind.type_kind == "b" else ""
    found = of_column(kind.type_oid, extension, native=native, modifier=kind.type_modifier)
    digits = precision_and_scale(kind.type_modifier) if found.decimal else None
    precision, scale = digits or (0, 0)
    item = None
    if found.bounds or found.ranges:
        oid, part = PARTS[kind.type_oid]
        item = _typed("", "", Element(oid, -1, part, "b"), native, envelope, exact)
    if envelope.format == "debezium":
        found = of_debezium(found, connect=envelope.connect_times, exact=exact)
        if found.conversion == "zoned_timestamp":
            # ALTER COLUMN TYPE timestamptz(3) to timestamptz rewrites no row: its key has to stay.
            any_digits = exact or kind.type_modifier < 0
            scale = _MOST_FRACTION if any_digits else kind.type_modifier
    return Field(column, name, found, precision, scale, item)


def has_choice(column: ColumnLike) -> bool:
    """Whether ``[types]`` decides how a column is carried."""
    return _field(column, TYPE_CHOICES).type is not _field(column, ()).type


def is_nested(column: ColumnLike, native: Collection[str]) -> bool:
    """Whether a column with these native choices has parts, unless it is in the key."""
    return _field(column, native).type.nested


def _avro_type(field: Field, namespace: str) -> str | dict[str, Any]:
    """Return the Avro type of a field; `namespace` is that of a record in it, and of no other."""
    avro = field.type.avro_type
    if field.type.array and field.item is not None:
        return {"type": avro, "items": ["null", _avro_type(field.item, namespace)]}
    if field.type.ranges and field.item is not None:
        return {"type": avro, "items": _avro_type(field.item, namespace)}
    if field.type.items:
        return {"type": avro, "items": field.type.items}
    if field.type.avro == "map":
        return {"type": avro, "values": ["null", "string"]}
    if field.type.record:
        return {
            "type": avro,
            "name": field.type.record,
            "namespace": namespace,
            "fields": [
                {"name": name, "type": _ARRAYS.get(kind, kind)}
                if field.item is None or kind != "bound"
                else {"name": name, "type": ["null", _avro_type(field.item, namespace)]}
                for name, kind in field.type.fields.items()
            ],
        }
    if field.type.decimal and isinstance(avro, dict):
        return {**avro, "precision": field.precision, "scale": field.scale}
    return avro


def _properties(column: ColumnLike, labels: Sequence[str]) -> dict[str, Any]:
    """Return the properties beside the type that let a consumer follow changes of the columns."""
    found: dict[str, Any] = {"pg_type": column.type_name}
    if column.base_type_name:
        found["pg_base_type"] = column.base_type_name
    if column.attnum:
        found["pg_attnum"] = column.attnum
    if column.missing is not None:
        found["pg_missing"] = column.missing
    if column.computed:
        found["pg_computed"] = True
    if labels:
        found["pg_labels"] = list(labels)
    return found


def _columns(
    namespace: str, fields: Sequence[Field], properties: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    columns = []
    for field in fields:
        entry = _nullable(field, namespace)
        entry |= properties[field.column]
        if field.name != field.column:
            entry["pg_column"] = field.column
        columns.append(entry)
    return columns


def _key_schema(namespace: str, fields: Sequence[Field], *, is_nullable: bool) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Key",
        "namespace": namespace,
        "fields": [
            _nullable(field, namespace)
            if is_nullable
            else {"name": field.name, "type": _avro_type(field, namespace)}
            for field in fields
        ],
    }


def _nullable(field: Field, namespace: str) -> dict[str, Any]:
    # A record needs a full name of its own: the field's is one within its table.
    avro = _avro_type(field, f"{namespace}.{field.name}")
    return {"name": field.name, "type": ["null", avro], "default": None}
