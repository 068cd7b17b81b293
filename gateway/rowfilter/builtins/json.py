"""json and jsonb.

Strings and keys inside jsonb are ordered under the database's default collation, whatever it is,
so ``<`` and its kin are supported where a constant has none. Casts depend on the server's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.pgtypes import json_text, jsonb, jsonb_access, jsonb_modify
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import BIGINT, INTEGER, SMALLINT, IntegerType
from gateway.pgtypes.jsonb import Jsonb
from gateway.pgtypes.numeric import numeric_to_float, numeric_to_float4, numeric_to_integer
from gateway.rowfilter.builtins.common import COMPARISONS, same
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "PARSERS", "operations"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {"json": json_text.read_json, "jsonb": jsonb.read_jsonb}
)

_SUBSCRIPTS: Final = "wrong number of array subscripts"


def _flat(array: Array) -> Sequence[bytes | None]:
    items: Sequence[bytes | None] = array.items
    return items


def _row(array: Array) -> Sequence[bytes | None]:
    """The items of an array that must not have several dimensions."""
    if len(array.dimensions) > 1:
        raise EvaluationError(_SUBSCRIPTS)
    return _flat(array)


# Order


def _without_text(value: Value) -> bool:
    """A constant of which no part is a string or a key, so that no collation matters to it."""
    if isinstance(value, Array):
        return all(map(_without_text, value.items))
    if isinstance(value, Jsonb):
        value = value.value
    if isinstance(value, list):
        return all(map(_without_text, value))
    return not value if isinstance(value, dict) else not isinstance(value, str)


def _ordering(operation: Operation) -> Operation:
    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        if any(map(_without_text, constants.values())):
            return operation
        return "strings in jsonb are ordered under the collation of the database"

    return replace(operation, specialize=specialize)


def _comparisons() -> list[Operation]:
    found = [
        Operation(f"jsonb_{suffix}", function, infix)
        for suffix, (infix, function) in COMPARISONS.items()
    ]
    return [
        operation if operation.infix in ("==", "!=") else _ordering(operation)
        for operation in (*found, Operation("jsonb_cmp", jsonb.compare))
    ]


def _limits(kind: IntegerType) -> dict[str, Any]:
    return {"low": kind.low, "high": kind.high, "name": kind.name}


# Constant arguments, prepared


def _prepare_field(
    constants: Mapping[int, Value], *, as_text: bool
) -> Callable[[Jsonb], Value] | None:
    key = constants.get(1)
    if not isinstance(key, bytes):
        return None
    name, missing = key.decode(), object()

    def field(document: Jsonb) -> Value:
        value = document.value
        if type(value) is not dict:
            return None
        found = value.get(name, missing)
        return None if found is missing else Jsonb(found)

    def field_text(document: Jsonb) -> Value:
        value = document.value
        return jsonb.as_text(value.get(name)) if type(value) is dict else None

    return field_text if as_text else field


def _prepare_field_jsonb(constants: Mapping[int, Value]) -> Callable[..., Value] | None:
    return _prepare_field(constants, as_text=False)


def _prepare_field_text(constants: Mapping[int, Value]) -> Callable[..., Value] | None:
    return _prepare_field(constants, as_text=True)


# Functions over arrays of text


def _exists_any(document: Jsonb, keys: Array) -> bool:
    return jsonb_access.exists_any(document, _flat(keys))


def _exists_all(document: Jsonb, keys: Array) -> bool:
    return jsonb_access.exists_all(document, _flat(keys))


def _path(document: Jsonb, steps: Array) -> Value:
    return jsonb_access.path(document, _flat(steps))


def _path_text(document: Jsonb, steps: Array) -> Value:
    return jsonb_access.path_text(document, _flat(steps))


def _json_path(document: bytes, steps: Array) -> Value:
    return json_text.path(document, _flat(steps))


def _json_path_text(document: bytes, steps: Array) -> Value:
    return json_text.path_text(document, _flat(steps))


def _delete_keys(document: Jsonb, keys: Array) -> Jsonb:
    return jsonb_modify.delete_keys(document, _row(keys))


def _delete_path(document: Jsonb, path: Array) -> Jsonb:
    return jsonb_modify.delete_path(document, _row(path))


def _set(document: Jsonb, path: Array, new: Jsonb, create: bool = True) -> Jsonb:
    return jsonb_modify.set_path(document, _row(path), new, create)


def _insert(document: Jsonb, path: Array, new: Jsonb, after: bool = False) -> Jsonb:
    return jsonb_modify.insert_path(document, _row(path), new, after)


def _set_lax(
    document: Jsonb | None,
    path: Array | None,
    new: Jsonb | None,
    create: bool | None = True,
    treatment: bytes | None = b"use_json_null",
) -> Jsonb | None:
    if document is None or path is None or create is None:
        return None
    # Only what takes the path looks at its dimensions.
    used = new is not None or treatment in (b"use_json_null", b"delete_key")
    steps = _row(path) if used and treatment is not None else _flat(path)
    return jsonb_modify.set_path_lax(document, steps, new, create, treatment)


_Pairs: TypeAlias = Callable[[Sequence[bytes | None], Sequence[bytes | None]], Value]


def _object(make: _Pairs) -> Callable[[Array], Value]:
    def of_array(array: Array) -> Value:
        items, sizes = _flat(array), array.dimensions
        if len(sizes) > 2:
            raise EvaluationError(_SUBSCRIPTS)
        if len(sizes) == 1 and sizes[0] % 2:
            raise EvaluationError("array must have even number of elements")
        if len(sizes) == 2 and sizes[1] != 2:
            raise EvaluationError("array must have two columns")
        return make(items[0::2], items[1::2])

    return of_array


def _object_two_arrays(make: _Pairs) -> Callable[[Array, Array], Value]:
    def of_arrays(keys: Array, values: Array) -> Value:
        if len(keys.dimensions) > 1 or len(keys.dimensions) != len(values.dimensions):
            raise EvaluationError(_SUBSCRIPTS)
        if len(keys.items) != len(values.items):
            raise EvaluationError("mismatched array dimensions")
        return make(_flat(keys), _flat(values))

    return of_arrays


def _json_operations() -> list[Operation]:
    """Of json: everything that takes a document apart can meet an escape that is no text."""
    nullable: dict[str, Callable[..., Value]] = {
        "json_object_field": json_text.field,
        "json_object_field_text": json_text.field_text,
        "json_array_element": json_text.element,
        "json_array_element_text": json_text.element_text,
        "json_extract_path": _json_path,
        "json_extract_path_text": _json_path_text,
    }
    return [
        *(Operation(n, f, can_raise=True, nullable=True) for n, f in nullable.items()),
        Operation("json_typeof", json_text.typeof),
        Operation("json_array_length", json_text.array_length, can_raise=True),
        Operation("json_strip_nulls", json_text.strip_nulls, can_raise=True),
        Operation("json_object", _object(json_text.object_of_pairs), can_raise=True),
        Operation(
            "json_object_two_arg", _object_two_arrays(json_text.object_of_pairs), can_raise=True
        ),
        Operation("json_send", same),
    ]


def _access_operations() -> list[Operation]:
    return [
        Operation(
            "jsonb_object_field", jsonb_access.field, nullable=True, prepare=_prepare_field_jsonb
        ),
        Operation(
            "jsonb_object_field_text",
            jsonb_access.field_text,
            nullable=True,
            prepare=_prepare_field_text,
        ),
        Operation("jsonb_array_element", jsonb_access.element, nullable=True),
        Operation("jsonb_array_element_text", jsonb_access.element_text, nullable=True),
        Operation("jsonb_extract_path", _path, nullable=True),
        Operation("jsonb_extract_path_text", _path_text, nullable=True),
        Operation("jsonb_contains", jsonb_access.contains),
        Operation("jsonb_contained", lambda part, document: jsonb_access.contains(document, part)),
        Operation("jsonb_exists", jsonb_access.exists),
        Operation("jsonb_exists_any", _exists_any),
        Operation("jsonb_exists_all", _exists_all),
        Operation("jsonb_typeof", jsonb_access.typeof),
        Operation("jsonb_array_length", jsonb_access.array_length, can_raise=True),
    ]


def _modify_operations() -> list[Operation]:
    raising: dict[str, Callable[..., Value]] = {
        "jsonb_delete": jsonb_modify.delete_key,
        "jsonb_delete_idx": jsonb_modify.delete_index,
        "jsonb_delete_array": _delete_keys,
        "jsonb_delete_path": _delete_path,
        "jsonb_set": _set,
        "jsonb_insert": _insert,
        "jsonb_object": _object(jsonb_modify.object_of_pairs),
        "jsonb_object_two_arg": _object_two_arrays(jsonb_modify.object_of_pairs),
    }
    return [
        Operation("jsonb_concat", jsonb_modify.concat),
        *(Operation(name, function, can_raise=True) for name, function in raising.items()),
        Operation("jsonb_set_lax", _set_lax, can_raise=True, strict=False),
        Operation("jsonb_strip_nulls", jsonb_modify.strip_nulls),
        Operation("jsonb_pretty", jsonb.pretty),
        Operation("jsonb_send", jsonb.send),
    ]


_NUMBERS: Final[Mapping[str, tuple[str, Callable[[Decimal], object]]]] = MappingProxyType(
    {
        "jsonb_numeric": ("numeric", same),
        "jsonb_int2": ("smallint", partial(numeric_to_integer, **_limits(SMALLINT))),
        "jsonb_int4": ("integer", partial(numeric_to_integer, **_limits(INTEGER))),
        "jsonb_int8": ("bigint", partial(numeric_to_integer, **_limits(BIGINT))),
        "jsonb_float4": ("real", numeric_to_float4),
        "jsonb_float8": ("double precision", numeric_to_float),
    }
)
"""Casts to numeric types: the type's name, and what makes it of a numeric."""


def _casts(major: int | None) -> list[Operation]:
    """Casts of jsonb; from 18 on a null becomes NULL. Without a version it raises, as before."""
    null = major is not None and major >= 18
    truth = partial(jsonb.cast, kind=bool, name="boolean", null=null)
    return [
        Operation("jsonb_bool", truth, can_raise=True, nullable=null),
        *(
            Operation(
                key,
                partial(jsonb.to_number, convert=convert, name=name, null=null),
                can_raise=True,
                nullable=null,
            )
            for key, (name, convert) in _NUMBERS.items()
        ),
    ]


_SAME_EVERYWHERE: Final[Sequence[Operation]] = (
    *_comparisons(),
    *_json_operations(),
    *_access_operations(),
    *_modify_operations(),
)


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any."""
    return (*_SAME_EVERYWHERE, *_casts(major))


OPERATIONS: Final[Sequence[Operation]] = operations(None)
