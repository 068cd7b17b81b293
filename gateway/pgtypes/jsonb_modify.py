"""Documents made of other documents: concatenation, deletion, replacement at a path.

Source: src/backend/utils/adt/jsonfuncs.c (IteratorConcat, setPath), jsonb.c (jsonb_object).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json, Jsonb, is_scalar, with_order
from gateway.pgtypes.jsonb_access import INT_MIN, parse_subscript

__all__ = [
    "Path",
    "concat",
    "delete_index",
    "delete_key",
    "delete_keys",
    "delete_path",
    "insert_path",
    "object_of_pairs",
    "set_path",
    "set_path_lax",
    "strip_nulls",
]

Path: TypeAlias = Sequence[bytes | None]

_LAX_CHOICES: Final = (
    'null_value_treatment must be "delete_key", "return_target", "use_json_null", or '
    '"raise_exception"'
)


def concat(left: Jsonb, right: Jsonb) -> Jsonb:
    """``||``."""
    a, b = left.value, right.value
    if isinstance(a, dict) and isinstance(b, dict):
        return Jsonb(with_order({**a, **b}))
    first = a if isinstance(a, list) else [a]
    second = b if isinstance(b, list) else [b]
    return Jsonb([*first, *second])


# Deletion


def _deletable(document: Jsonb) -> Json:
    if is_scalar(document.value):
        raise EvaluationError("cannot delete from scalar")
    return document.value


def delete_key(document: Jsonb, key: bytes) -> Jsonb:
    """``- text``: a key of an object, or the strings of an array that equal it."""
    return delete_keys(document, (key,))


def delete_keys(document: Jsonb, keys: Path) -> Jsonb:
    """``- text[]``; NULLs among the keys do not count."""
    value = _deletable(document)
    names = {key.decode() for key in keys if key is not None}
    if isinstance(value, dict):
        return Jsonb({key: item for key, item in value.items() if key not in names})
    return Jsonb([item for item in value if not (isinstance(item, str) and item in names)])


def delete_index(document: Jsonb, index: int) -> Jsonb:
    """``- integer``; a negative index counts from the end."""
    value = _deletable(document)
    if isinstance(value, dict):
        raise EvaluationError("cannot delete from object using integer index")
    if not -len(value) <= index < len(value):
        return document
    index %= len(value)
    return Jsonb(value[:index] + value[index + 1 :])


def delete_path(document: Jsonb, path: Path) -> Jsonb:
    """``#-``."""
    if is_scalar(document.value):
        raise EvaluationError("cannot delete path in scalar")
    if not document.value or not path:
        return document
    return Jsonb(_Editor(path, None, deletes=True).edit(document.value, 0))


# Replacement


def set_path(document: Jsonb, path: Path, new: Jsonb, create: bool = True) -> Jsonb:
    """jsonb_set()."""
    if is_scalar(document.value):
        raise EvaluationError("cannot set path in scalar")
    if (not document.value and not create) or not path:
        return document
    return Jsonb(_Editor(path, new, creates=create).edit(document.value, 0))


def set_path_lax(
    document: Jsonb | None,
    path: Path | None,
    new: Jsonb | None,
    create: bool | None = True,
    treatment: bytes | None = b"use_json_null",
) -> Jsonb | None:
    """jsonb_set_lax(); not strict."""
    if document is None or path is None or create is None:
        return None
    if treatment is None:
        raise EvaluationError(_LAX_CHOICES)
    if new is not None:
        return set_path(document, path, new, create)
    if treatment == b"raise_exception":
        raise EvaluationError("JSON value must not be null")
    if treatment == b"use_json_null":
        return set_path(document, path, Jsonb(None), create)
    if treatment == b"delete_key":
        return delete_path(document, path)
    if treatment == b"return_target":
        return document
    raise EvaluationError(_LAX_CHOICES)


def insert_path(document: Jsonb, path: Path, new: Jsonb, after: bool = False) -> Jsonb:
    """jsonb_insert()."""
    if is_scalar(document.value):
        raise EvaluationError("cannot set path in scalar")
    if not path:
        return document
    return Jsonb(
        _Editor(path, new, creates=True, inserts=-1 if after else 1).edit(document.value, 0)
    )


class _Editor:
    """One walk along a path: what setPath() does with one of its operations.

    `inserts` is 1 for before, -1 for after, 0 for an operation that replaces or deletes.
    """

    __slots__ = ("_creates", "_deletes", "_inserts", "_new", "_path")

    def __init__(
        self,
        path: Path,
        new: Jsonb | None,
        *,
        creates: bool = False,
        deletes: bool = False,
        inserts: int = 0,
    ) -> None:
        self._path, self._new = path, None if new is None else new.value
        self._creates, self._deletes, self._inserts = creates, deletes, inserts

    def edit(self, value: Json, level: int) -> Json:
        """`value`, found at `level` of the path, changed."""
        step = self._path[level]
        if step is None:
            raise EvaluationError(f"path element at position {level + 1} is null")
        if isinstance(value, dict):
            return self._edit_object(value, step, level)
        return self._edit_array(value, step, level) if isinstance(value, list) else value

    def _edit_object(self, value: dict[str, Json], step: bytes, level: int) -> Json:
        key, last = step.decode(), level == len(self._path) - 1
        if key not in value:
            return with_order({**value, key: self._new}) if last and self._creates else value
        if not last:
            return {**value, key: self.edit(value[key], level + 1)}
        if self._inserts:
            raise EvaluationError("cannot replace existing key")
        if self._deletes:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: self._new}

    def _edit_array(self, value: list[Json], step: bytes, level: int) -> Json:
        size, last = len(value), level == len(self._path) - 1
        index = parse_subscript(step)
        if index is None:
            raise EvaluationError(f"path element at position {level + 1} is not an integer")
        if index < 0:
            index = INT_MIN if -index > size else size + index
        if not 0 <= index < size:
            if not (last and self._creates):
                return value
            return [self._new, *value] if index < 0 else [*value, self._new]
        before, item, after = value[:index], value[index], value[index + 1 :]
        if not last:
            return [*before, self.edit(item, level + 1), *after]
        if self._deletes:
            return before + after
        if self._inserts:
            return [*before, *([self._new, item][:: self._inserts]), *after]
        return [*before, self._new, *after]


# Others


def strip_nulls(document: Jsonb, in_arrays: bool = False) -> Jsonb:
    """jsonb_strip_nulls()."""

    def strip(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if item is not None}
        if isinstance(value, list):
            return [strip(item) for item in value if item is not None or not in_arrays]
        return value

    return Jsonb(strip(document.value))


def object_of_pairs(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
) -> Jsonb:
    """jsonb_object(): the last of several values for a key counts.

    Raises:
        EvaluationError: a key is NULL.
    """
    text: Callable[[bytes | None], Json] = lambda raw: None if raw is None else raw.decode()  # noqa: E731
    found: dict[str, Json] = {}
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise EvaluationError("null value not allowed for object key")
        found[key.decode()] = text(value)
    return Jsonb(with_order(found))
