"""Layout of a table by its writer schemas: columns, key, and equality of values.

Inside the job's frames a column is known by the name of its Avro field: escaped, so plain in SQL,
and the same in every version of the schema. PostgreSQL's name is for the Delta table alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.types import MILLIS
from spark_consumer.errors import ContractError, TableError
from spark_consumer.values.keys import canonical

__all__ = [
    "Column",
    "ColumnPlan",
    "KeyLayout",
    "Layout",
    "identity_layout",
    "key_layout",
    "row_record",
    "value_layout",
]


@dataclass(frozen=True, slots=True)
class Column:
    """A published column.

    Attributes:
        field: Its Avro field, ``[A-Za-z_][A-Za-z0-9_]*``.
        name: PostgreSQL's name.
        pg_type: PostgreSQL's type under any domains, as ``format_type`` writes it; empty when not
            known.
        missing: Value in rows that are older than the column, as PostgreSQL prints it.
        number: PostgreSQL's attnum, which outlives a rename; None when not known.
        computed: Whether rows that are older than the column may each have another value.
    """

    field: str
    name: str
    pg_type: str
    missing: str | None = None
    number: int | None = None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one writer schema, in its order."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A published column and its column of the Delta table.

    Attributes:
        field: Avro field.
        name: PostgreSQL's name, which is the Delta column's.
        pg_type: PostgreSQL's type.
        spark_type: Type of the Delta column, as ``simpleString`` writes it.
    """

    field: str
    name: str
    pg_type: str
    spark_type: str

    def canonical(self, sql: str, *, key: bool = False) -> str:
        """See `canonical`."""
        return canonical(sql, self.spark_type, self.pg_type, key=key)


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """Key that identifies a row.

    Attributes:
        fields: Avro fields of the key's columns, in the key's order.
        in_row: Whether their values are those of the row: the record's key has other columns.
    """

    fields: tuple[str, ...]
    in_row: bool = False


def row_record(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record of `before` and `after` in an envelope's schema.

    Raises:
        ContractError: it is no envelope, or one of a topic that lacks truncates or microseconds.
    """
    where = f"{schema.get('namespace', '')}.{schema.get('name', '')}"
    if schema.get("name") == "Row" or schema.get("pg_truncates") is False:
        why = "the format row" if schema.get("name") == "Row" else "a topic without `t` records"
        raise ContractError(
            f"the schema {where} is that of {why}, of which no equal table can be made",
            hint="[envelope]: this job reads the formats pgsluice and debezium, with truncates",
        )
    try:
        fields = {field["name"]: field for field in schema["fields"]}
        record: Mapping[str, Any] = next(
            kind for kind in fields["before"]["type"] if isinstance(kind, dict)
        )
        if record["name"] not in fields["after"]["type"] or "fields" not in record:
            raise KeyError("after")
    except (KeyError, TypeError, StopIteration) as error:
        raise ContractError(
            f"the schema {where} is not an envelope",
            hint="see schemas/envelope.avsc",
        ) from error
    if _has_milliseconds(record):
        raise ContractError(
            f"the schema {where} has times in milliseconds, of which no equal table can be made",
            hint='[envelope]: this job reads no time_precision = "connect"',
        )
    return record


def _has_milliseconds(kind: object) -> bool:
    """Whether a type, or one in it, cuts off microseconds."""
    if isinstance(kind, list):
        return any(map(_has_milliseconds, kind))
    if not isinstance(kind, Mapping):
        return False
    within = (kind.get("type"), kind.get("items"), kind.get("fields"))
    return kind.get("logicalType") in MILLIS or any(map(_has_milliseconds, within))


def value_layout(schema: Mapping[str, Any]) -> Layout:
    """Read the columns from an envelope's schema.

    Raises:
        ContractError: it is no envelope.
        TableError: two columns differ only by case, which Spark does not distinguish, or a column
            has a name that Delta reserves.
    """
    columns = tuple(
        Column(
            field["name"],
            field.get("pg_column", field["name"]),
            field.get("pg_base_type", field.get("pg_type", "")),
            field.get("pg_missing"),
            field.get("pg_attnum"),
            field.get("pg_computed", False),
        )
        for field in row_record(schema)["fields"]
    )
    seen: dict[str, str] = {}
    for column in columns:
        if column.name.lower() in _OF_DELTA:
            raise TableError(
                f"{schema['namespace']}: a column is called {column.name!r}, and Delta's own"
                " commands have that name for something else",
                hint="rename it, or leave it out with a column list",
            )
        for fold in _folds(column.name):
            if (other := seen.setdefault(fold, column.name)) != column.name:
                raise TableError(
                    f"{schema['namespace']}: the columns {other!r} and {column.name!r} differ by"
                    " case alone, and a Delta table cannot hold both",
                    hint="rename one of them, or leave it out with a column list",
                )
    return Layout(columns)


_OF_DELTA: Final = frozenset(
    {
        "_row_id_", "_file_name_", "_input_file_name_", "_row_dropped_", "_target_row_present_",
        "_source_row_present_", "_target_row_index_", "_source_row_index", "__is_cdc",
        "__delta_internal_row_index", "__delta_internal_is_row_deleted",
    }
)  # fmt: skip
"""Names of columns that MERGE, UPDATE and deletion vectors add to those of the table."""


def _folds(name: str) -> set[str]:
    """Return texts of which two names share one if and only if Spark regards them as equal.

    Spark compares with Java's equalsIgnoreCase, character by character, and in other places the
    lower case of both. Unlike `str.casefold`, neither makes ss of ß; the first makes i of the two
    letters i of Turkish.
    """
    return {"".join(map(_fold, text.lower())) for text in (name, name.replace("İ", "i"))}


def _fold(character: str) -> str:
    upper = character.upper()
    return upper.lower() if len(upper) == 1 and len(upper.lower()) == 1 else character


def identity_layout(value: Mapping[str, Any], key: Mapping[str, Any] | None) -> KeyLayout | None:
    """Return what identifies the rows of a topic; None for a multiset.

    Args:
        value: Schema of the values, which names it where the key is another one.
        key: Schema of the keys; None without a key.

    Raises:
        ContractError: the schema of the values names fields that it does not have.
    """
    if "pg_identity" not in value:
        return None if key is None else key_layout(key)
    fields = tuple(value["pg_identity"])
    if not {field["name"] for field in row_record(value)["fields"]}.issuperset(fields):
        raise ContractError(
            f"the schema {value.get('namespace', '')}.{value.get('name', '')} has no field of"
            " `pg_identity`",
            hint="see docs/envelope.md",
        )
    return KeyLayout(fields, in_row=True) if fields else None


def key_layout(schema: Mapping[str, Any]) -> KeyLayout | None:
    """Read the key's columns; return None if the key is the whole row, and the table a multiset."""
    fields = schema["fields"]
    if fields and all(isinstance(field["type"], list) for field in fields):
        return None
    return KeyLayout(tuple(field["name"] for field in fields))
