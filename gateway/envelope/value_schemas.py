"""Schemas of a table's values, by format: the envelope, the envelope as Debezium has it, the row.

Debezium's has the fields of the envelope in the same order and the same bytes, but for the values
of its semantic types: names and versions are properties that Connect's converters read, and fields
of its ``source`` that are not known here are null, in `SOURCE_NULLS`.
schemas/envelope-debezium.avsc and schemas/envelope-row.avsc are what is made of the manual's t1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from gateway.core.errors import SchemaError
from schemas import load
from schemas.settings.tables import Envelope

__all__ = ["SOURCE_NULLS", "key_properties", "value_schema"]

_UNKNOWN: Final = {
    "sequence": "string",
    "xmin": "long",
    "ts_us": "long",
    "ts_ns": "long",
    "origin_lsn": "long",
}
"""Optional fields of Debezium's ``source``, after ``table``."""

SOURCE_NULLS: Final = bytes(len(_UNKNOWN))
"""Their values."""

_SNAPSHOTS: Final = (
    "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
)
"""Values that Debezium's ``source.snapshot`` can have; three of them occur here."""
_ENVELOPE_VERSION: Final = 2
"""Version of Debezium's envelope; its schemas of rows and keys have none."""


def value_schema(
    namespace: str, columns: Sequence[Mapping[str, Any]], envelope: Envelope
) -> dict[str, Any]:
    """Return the schema of a table's values.

    Args:
        namespace: Namespace of the table's records.
        columns: Fields of the row.
        envelope: Format of the values.

    Raises:
        SchemaError: a column has the name of a field that the format adds to the row.
    """
    return _MADE[envelope.format](namespace, columns, envelope)


def key_properties(namespace: str, envelope: Envelope) -> dict[str, Any]:
    """Return the properties of a table's record ``Key``, beside name and fields."""
    return _named(f"{namespace}.Key", None) if envelope.format == "debezium" else {}


def _named(name: str, version: int | None = 1) -> dict[str, Any]:
    """Return properties by which Connect's converters name a schema."""
    versioned = {} if version is None else {"connect.version": version}
    return {**versioned, "connect.name": name}


@cache
def _shared() -> dict[str, Any]:
    """Return the envelope, of which all tables share what is the same in each.

    Parsing it for each table takes as long as all the rest of a description.
    """
    return load("envelope")


def _envelope(
    namespace: str, columns: Sequence[Mapping[str, Any]], envelope: Envelope
) -> dict[str, Any]:
    return _filled(_shared(), namespace, columns, envelope)


def _filled(
    template: dict[str, Any],
    namespace: str,
    columns: Sequence[Mapping[str, Any]],
    envelope: Envelope,
) -> dict[str, Any]:
    """Return `template` for one table; what no table changes is that of `template`."""
    before, *others = template["fields"]
    null, value = before["type"]
    before = {**before, "type": [null, {**value, "fields": list(columns)}]}
    schema = {**template, "namespace": namespace, "fields": [before, *others]}
    if not envelope.truncates:
        schema["pg_truncates"] = False
    return schema


def _debezium(
    namespace: str, columns: Sequence[Mapping[str, Any]], envelope: Envelope
) -> dict[str, Any]:
    schema = _filled(load("envelope"), namespace, columns, envelope)
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    (value,) = (kind for kind in kinds["before"] if isinstance(kind, dict))
    (transaction,) = (kind for kind in kinds["transaction"] if isinstance(kind, dict))
    source = kinds["source"]
    schema |= _named(f"{namespace}.Envelope", _ENVELOPE_VERSION)
    value |= _named(f"{namespace}.Value", None)
    transaction |= _named("event.block")
    source |= _named("io.debezium.connector.postgresql.Source")
    fields: list[dict[str, Any]] = []
    for field in source["fields"]:
        fields.append(field)
        if field["name"] == "table":
            fields += (
                {"name": name, "type": ["null", kind], "default": None}
                for name, kind in _UNKNOWN.items()
            )
        elif field["name"] == "snapshot":
            kind = {"type": field["type"], **_named("io.debezium.data.Enum")}
            field["type"] = {**kind, "connect.parameters": {"allowed": _SNAPSHOTS}}
    source["fields"] = fields
    return schema


def _row(
    namespace: str, columns: Sequence[Mapping[str, Any]], envelope: Envelope
) -> dict[str, Any]:
    schema = load("envelope-row")
    schema["namespace"] = namespace
    added = [field for field in schema["fields"] if field["name"].startswith("__")]
    if taken := {field["name"] for field in added}.intersection(c["name"] for c in columns):
        raise SchemaError(
            f"{namespace}: a column is called {min(taken)}, and the format row has a field of that"
            " name",
            hint="leave it out with a column list, or choose another [envelope] format",
        )
    schema["fields"] = [*columns, *added]
    return schema


_MADE: Final[
    Mapping[str, Callable[[str, Sequence[Mapping[str, Any]], Envelope], dict[str, Any]]]
] = {"pgsluice": _envelope, "debezium": _debezium, "row": _row}
