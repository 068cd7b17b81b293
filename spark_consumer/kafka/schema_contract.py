"""Contract of writer schemas, checked before anything is decoded by one, whoever wrote it.

Avro allocates the memory that a record claims to need. Claims that a schema allows are bounded
here: no type inside itself, no maps but of texts, no large fixed types, and no arrays of items that
take no bytes. Claims of a single value are bounded by `spark_consumer.spark.session.AVRO_LIMITS`.

Only properties that a gateway writes are kept: with others Avro's and Spark's readers can be made
to read a value as another type, or by another class. Debezium's semantic types become the
logicalTypes that mean the same, and columns that tables store as VARIANT get one of the job's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.settings.consumer import JsonMode
from schemas.types import VARIANTS, job_logical_type
from spark_consumer.errors import ContractError

__all__ = ["VARIANT", "parsed_schema"]

VARIANT: Final = "variant"
"""logicalType of a text that is stored as VARIANT; no schema in a registry has it."""

_LONGEST: Final = 4 * 1024 * 1024
_DEEPEST: Final = 10
"""Depth of records, arrays and unions in one another; an envelope has nine."""
_MOST: Final = 40_000
"""Types in a schema; a table has at most 1,600 columns, each of twenty at most."""
_LARGEST_FIXED: Final = 256
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PRIMITIVE: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_KEPT: Final = frozenset(
    {
        *("type", "name", "namespace", "doc", "default", "fields", "items", "symbols", "size"),
        "values",
        *("logicalType", "precision", "scale"),
        *("pg_column", "pg_type", "pg_base_type", "pg_missing", "pg_attnum", "pg_computed"),
        *("pg_truncates", "pg_identity"),
    }
)
_OF_A_COLUMN: Final[Mapping[str, type]] = {
    "pg_column": str,
    "pg_type": str,
    "pg_base_type": str,
    "pg_missing": str,
    "pg_attnum": int,
    "pg_computed": bool,
}
_HINT: Final = "who may write to the schema registry, and is [registry] url the gateway's?"


def parsed_schema(schema_id: int, text: str, json_mode: JsonMode = "text") -> dict[str, Any]:
    """Read a schema that is a record, as key, value and marker are.

    Args:
        schema_id: ID of the schema, for messages.
        text: The schema as JSON.
        json_mode: Type of tables' columns that are json or jsonb in PostgreSQL.

    Raises:
        ContractError: it is not one that a gateway writes; the message says why.
    """
    if len(text) > _LONGEST:
        raise _refused(schema_id, f"it has {len(text)} characters, more than {_LONGEST}")
    try:
        schema = json.loads(text)
    except RecursionError as error:
        raise _refused(schema_id, "its JSON is nested too deeply") from error
    except ValueError as error:
        raise _refused(schema_id, "it is not JSON") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _refused(schema_id, "it is not a record")
    identity = schema.get("pg_identity", [])
    if not isinstance(identity, list) or not all(isinstance(name, str) for name in identity):
        raise _refused(schema_id, "pg_identity is no list of texts")
    _Checker(schema_id).check(schema, "", ())
    plain = {key: _plain(key, value) for key, value in schema.items() if key in _KEPT}
    return _with_variants(plain) if json_mode == "variant" else plain


def _with_variants(part: Any) -> Any:
    """Return a part of a schema in which the texts of json columns have the logicalType variant."""
    if isinstance(part, list):
        return [_with_variants(one) for one in part]
    if not isinstance(part, dict):
        return part
    kind = part.get("pg_base_type", part.get("pg_type"))
    if kind in VARIANTS and part.get("type") is not None:
        return {**part, "type": _as_variant(part["type"])}
    # A default is a value, which the checks have not bounded.
    return {
        key: value if key == "default" else _with_variants(value) for key, value in part.items()
    }


def _as_variant(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_as_variant(one) for one in kind]
    plain = kind.get("type") if isinstance(kind, dict) else kind
    return {"type": "string", "logicalType": VARIANT} if plain == "string" else kind


def _plain(key: str, value: Any) -> Any:
    """Return a part of a checked schema without properties that a gateway does not write."""
    if key in ("default", "symbols"):
        return value
    if isinstance(value, list):
        return [_plain(key, one) for one in value]
    if isinstance(value, dict):
        kept = {
            inner: _plain(inner, one)
            for inner, one in value.items()
            if inner in _KEPT and (inner, one) != ("logicalType", VARIANT)
        }
        logical = job_logical_type(value)
        return kept if logical is None else {**kept, "logicalType": logical}
    return value


def _refused(schema_id: int, why: str) -> ContractError:
    return ContractError(f"schema {schema_id} is refused: {why}", hint=_HINT)


class _Checker:
    def __init__(self, schema_id: int) -> None:
        self._schema_id = schema_id
        self._types = 0
        # By full name, whether a value is encoded in no bytes.
        self._named: dict[str, bool] = {}

    def check(self, kind: object, namespace: str, within: tuple[str, ...]) -> bool:
        """Whether a value of a type is encoded in no bytes; raise if the type is not allowed."""
        self._types += 1
        if self._types > _MOST:
            raise self._error(f"it has more than {_MOST} types")
        if len(within) > _DEEPEST:
            raise self._error(f"its types are nested more than {_DEEPEST} deep")
        if isinstance(kind, str):
            return self._by_name(kind, namespace, within)
        if isinstance(kind, list):
            for one in kind:
                if isinstance(one, list):
                    raise self._error("it has a union in a union")
                self.check(one, namespace, (*within, ""))
            return False
        if not isinstance(kind, Mapping):
            raise self._error("it has a type that is none")
        match kind.get("type"):
            case "record":
                return self._record(kind, namespace, within)
            case "array":
                if self.check(kind.get("items"), namespace, (*within, "")):
                    raise self._error("it has an array of items that take no bytes")
                return False
            case "map" if kind.get("values") == ["null", "string"]:
                return False
            case "enum":
                self._symbols(kind.get("symbols"))
                self._name(kind, namespace, empty=False)
                return False
            case "fixed":
                size = kind.get("size")
                if not isinstance(size, int) or not 0 < size <= _LARGEST_FIXED:
                    raise self._error(f"it has a fixed type of size {size}")
                self._name(kind, namespace, empty=False)
                return False
            case inner:
                return self.check(inner, namespace, (*within, ""))

    def _record(self, kind: Mapping[str, Any], namespace: str, within: tuple[str, ...]) -> bool:
        fields = kind.get("fields")
        if not isinstance(fields, list):
            raise self._error("it has a record without fields")
        name = self._full_name(kind, namespace)
        inner = name.rpartition(".")[0]
        empty = True
        seen: set[str] = set()
        for field in fields:
            label = field.get("name") if isinstance(field, Mapping) else None
            if not isinstance(label, str) or not _NAME.fullmatch(label) or label in seen:
                raise self._error("it has a field without a proper name of its own")
            seen.add(label)
            for name_of, kind_of in _OF_A_COLUMN.items():
                if not isinstance(field.get(name_of), kind_of | None):
                    raise self._error(f"{name_of} of the field {label} is no {kind_of.__name__}")
            empty &= self.check(field.get("type"), inner, (*within, name))
        self._named[name] = empty
        return empty

    def _symbols(self, symbols: object) -> None:
        if not isinstance(symbols, list) or len(symbols) > _MOST:
            raise self._error(f"it has an enumeration of no symbols, or of more than {_MOST}")
        proper = (isinstance(one, str) and _NAME.fullmatch(one) for one in symbols)
        if not all(proper) or len(set(symbols)) < len(symbols):
            raise self._error("it has an enumeration with a symbol that is no name of its own")

    def _by_name(self, kind: str, namespace: str, within: tuple[str, ...]) -> bool:
        if kind in _PRIMITIVE:
            return kind == "null"
        full = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        if full in within:
            raise self._error("it has a type inside itself")
        if full not in self._named:
            raise self._error("it names a type that it does not have")
        return self._named[full]

    def _name(self, kind: Mapping[str, Any], namespace: str, *, empty: bool) -> None:
        self._named[self._full_name(kind, namespace)] = empty

    def _full_name(self, kind: Mapping[str, Any], namespace: str) -> str:
        name, own = kind.get("name"), kind.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(own, str):
            raise self._error("it has a type without a name")
        return name if "." in name or not own else f"{own}.{name}"

    def _error(self, why: str) -> ContractError:
        return _refused(self._schema_id, why)
