"""jsonpath: ``@?``, ``@@`` and the functions that evaluate a constant path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import jsonpath_exec
from gateway.pgtypes.jsonb import Jsonb
from gateway.pgtypes.jsonpath import JsonPath, read_jsonpath
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {"jsonpath": read_jsonpath}
)

_PATH: Final = 1
_SILENT: Final = 3


def _refusal(constants: Mapping[int, Value], silent: bool) -> str | None:
    """Why a call with these constant arguments is not supported."""
    if _PATH not in constants:
        return "the path must be a constant"
    path = constants[_PATH]
    if not isinstance(path, JsonPath):  # NULL
        return None
    if path.unsupported:
        return path.unsupported
    if path.messages_vary and not silent and constants.get(_SILENT) is not True:
        return "the errors of methods that convert values are supported only if silent"
    return None


def _of_constant_path(operation: Operation, *, silent: bool = False) -> Operation:
    operation = replace(operation, can_raise=True)

    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        return _refusal(constants, silent) or operation

    return replace(operation, specialize=specialize)


def _find_array(
    document: Jsonb, path: JsonPath, variables: Jsonb | None = None, silent: bool = False
) -> Jsonb:
    return Jsonb(jsonpath_exec.find(document, path, variables, silent))


def _find_first(
    document: Jsonb, path: JsonPath, variables: Jsonb | None = None, silent: bool = False
) -> Jsonb | None:
    found = jsonpath_exec.find(document, path, variables, silent)
    return Jsonb(found[0]) if found else None


_exists_silently = partial(jsonpath_exec.exists, silent=True)
_match_silently = partial(jsonpath_exec.matches, silent=True)

OPERATIONS: Final[Sequence[Operation]] = (
    _of_constant_path(
        Operation("jsonb_path_exists_opr", _exists_silently, nullable=True), silent=True
    ),
    _of_constant_path(
        Operation("jsonb_path_match_opr", _match_silently, nullable=True), silent=True
    ),
    _of_constant_path(Operation("jsonb_path_exists", jsonpath_exec.exists, nullable=True)),
    _of_constant_path(Operation("jsonb_path_match", jsonpath_exec.matches, nullable=True)),
    _of_constant_path(Operation("jsonb_path_query_array", _find_array)),
    _of_constant_path(Operation("jsonb_path_query_first", _find_first, nullable=True)),
)
