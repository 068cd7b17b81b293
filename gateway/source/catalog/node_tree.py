"""PostgreSQL's own check of row filters, on expression trees as ``pg_node_tree`` prints them. Pure.

Only needed where the server does not make the check itself: before 15, and for a role that may
not create a publication.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

__all__ = [
    "FIRST_NORMAL_OID",
    "ONLY_BUILT_IN",
    "FilterFault",
    "Node",
    "find_fault",
    "function_oids",
    "parse_node_tree",
]

Value: TypeAlias = "Node | list[Value] | str"


@dataclass(slots=True)
class Node:
    """One node: its name in capitals, and its fields by name; all plain values are text."""

    name: str
    fields: dict[str, Value] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return a field that holds a number, 0 when the node has no such field."""
        value = self.fields.get(name, "0")
        return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else 0


@dataclass(frozen=True, slots=True)
class FilterFault:
    """Reason for which a filter is refused: PostgreSQL's DETAIL, and a byte offset or -1."""

    detail: str
    location: int


FIRST_NORMAL_OID: Final = 16384
ONLY_BUILT_IN: Final = (
    "Only columns, constants, built-in operators, built-in data types, "
    "built-in collations, and immutable built-in functions are allowed."
)
_TOKEN: Final = re.compile(r"[(){}]|(?:\\.|[^\s(){}\\])+", re.DOTALL)

_OPERATORS: Final = frozenset({"OPEXPR", "DISTINCTEXPR", "NULLIFEXPR", "SCALARARRAYOPEXPR"})
_ALLOWED: Final = _OPERATORS | {
    "VAR",
    "ROWCOMPAREEXPR",
    "ROWCOMPARE",
    "CONST",
    "FUNCEXPR",
    "BOOLEXPR",
    "RELABELTYPE",
    "COLLATEEXPR",
    "COLLATE",
    "CASEEXPR",
    "CASE",
    "CASETESTEXPR",
    "ARRAYEXPR",
    "ARRAY",
    "ROWEXPR",
    "ROW",
    "COALESCEEXPR",
    "COALESCE",
    "MINMAXEXPR",
    "MINMAX",
    "XMLEXPR",
    "NULLTEST",
    "BOOLEANTEST",
}
_TRANSPARENT: Final = frozenset({"CASEWHEN", "WHEN"})
"""Parts of a CASE that PostgreSQL's walkers skip."""

_TYPE_FIELDS: Final = (
    "vartype",
    "consttype",
    "funcresulttype",
    "opresulttype",
    "resulttype",
    "casetype",
    "typeId",
    "array_typeid",
    "row_typeid",
    "coalescetype",
    "minmaxtype",
)
_FUNCTION_FIELDS: Final = ("funcid", "opfuncid")


def parse_node_tree(text: str) -> Value:
    """Parse the output of ``nodeToString``.

    Raises:
        ValueError: The text is not a node tree.

    Source: outfuncs.c and read.c.
    """
    tokens = _TOKEN.findall(text)
    value, end = _read(tokens, 0)
    if end != len(tokens):
        raise ValueError("text after the end of a node tree")
    return value


def function_oids(value: Value) -> set[int]:
    """Return the OIDs of all functions that an expression calls by itself or by its operators."""
    return {
        oid for node in _walk(value) for name in _FUNCTION_FIELDS if (oid := node.number(name)) != 0
    }


def find_fault(value: Value, volatility: Mapping[int, str]) -> FilterFault | None:
    """Return the violation of the rules for row filters, or None.

    Args:
        value: The expression.
        volatility: ``provolatile`` of every function of `function_oids`.

    Source: check_simple_rowfilter_expr_walker in publicationcmds.c.
    """
    for node in _walk(value):
        if (detail := _fault(node, volatility)) is not None:
            return FilterFault(detail, node.number("location") if "location" in node.fields else -1)
    return None


def _fault(node: Node, volatility: Mapping[int, str]) -> str | None:
    if node.name == "VAR" and node.number("varattno") < 0:
        return "System columns are not allowed."
    operators = [node.number("opno")] if node.name in _OPERATORS else _numbers(node, "opnos")
    if any(oid >= FIRST_NORMAL_OID for oid in operators):
        return "User-defined operators are not allowed."
    if node.name not in _ALLOWED:
        return ONLY_BUILT_IN
    if any(node.number(name) >= FIRST_NORMAL_OID for name in _TYPE_FIELDS):
        return "User-defined types are not allowed."
    for name in _FUNCTION_FIELDS:
        oid = node.number(name)
        if oid >= FIRST_NORMAL_OID or (oid and volatility[oid] != "i"):
            return "User-defined or built-in mutable functions are not allowed."
    collations = [node.number(name) for name in node.fields if name.endswith(("collid", "collOid"))]
    if any(oid >= FIRST_NORMAL_OID for oid in collations):
        return "User-defined collations are not allowed."
    return None


def _walk(value: Value) -> Iterator[Node]:
    """Yield the nodes of an expression, parents first."""
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, Node):
        if value.name not in _TRANSPARENT:
            yield value
        if value.name != "SUBLINK":
            for item in value.fields.values():
                yield from _walk(item)


def _numbers(node: Node, name: str) -> list[int]:
    value = node.fields.get(name)
    if not isinstance(value, list):
        return []
    return [int(item) for item in value if isinstance(item, str) and item.isdigit()]


def _read(tokens: list[str], position: int) -> tuple[Value, int]:
    word = tokens[position]
    if word == "(":
        items: list[Value] = []
        position += 1
        while tokens[position] != ")":
            item, position = _read(tokens, position)
            items.append(item)
        return items, position + 1
    if word != "{":
        return word, position + 1
    node = Node(tokens[position + 1])
    position += 2
    name = ""
    values: list[Value] = []
    while (word := tokens[position]) != "}":
        if word.startswith(":"):
            _keep(node, name, values)
            name, values = word[1:], []
            position += 1
        else:
            item, position = _read(tokens, position)
            values.append(item)
    _keep(node, name, values)
    return node, position + 1


def _keep(node: Node, name: str, values: list[Value]) -> None:
    """Store a field; a datum ("4 [ 1 0 0 0 ]") is several values."""
    if name:
        node.fields[name] = values[0] if len(values) == 1 else values
