"""Rewrite the tables of docs/row-filters.md from what the gateway implements.

    python tools/update_row_filter_document.py

tests/unit/rowfilter/test_document.py fails when they differ. The text around the tables stays.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.pgtypes.catalog import CASTS, FUNCTIONS, OPERATORS, POLYMORPHIC, TYPES
from gateway.rowfilter import operators
from gateway.rowfilter.types import PARSERS, type_name

DOCUMENT = Path(__file__).parent.parent / "docs" / "row-filters.md"

_BEHIND = re.compile(
    r"(bt|hash|in_range)|.*(cmp|cmp_date|cmp_timestamp|larger|smaller|_send|_hash|_hash_extended"
    r"|_subdiff|_canonical|_statefunc|numeric_inc|8inc|8dec|4inc)$"
)
_BEHIND_OTHERS = {key for key, _ in OPERATORS.values()} | set(CASTS.values())
_DOCUMENTED = frozenset(
    ("abs", "mod", "sqrt", "cbrt", "power", "pow", "starts_with", "array_append", "array_prepend",
     "array_cat", "json_extract_path", "json_extract_path_text", "jsonb_extract_path",
     "jsonb_extract_path_text")
)  # fmt: skip
"""Functions of the manual that are behind an operator as well."""


def _scalar_types() -> list[int]:
    return [oid for oid, _ in TYPES.values() if oid in PARSERS]


def _known(type_oid: int) -> bool:
    return type_oid in PARSERS or type_oid in POLYMORPHIC


def _name(type_oid: int) -> str:
    """A type; the pseudo-types by the one that the manual uses most."""
    pseudo = POLYMORPHIC.get(type_oid)
    if pseudo is None:
        return type_name(type_oid)
    return pseudo.replace("anycompatible", "any") if pseudo != "anycompatible" else "anyelement"


def _code(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`".replace("|", "\\|") for name in names)


def operator_rows() -> list[str]:
    """One line for each type on the left and each set of operators that it has."""
    found: dict[str, dict[str, list[str]]] = {}
    for left in (0, *_scalar_types(), *POLYMORPHIC):
        by_type = found.setdefault(_name(left) if left else "", defaultdict(list))
        for (name, of_left, right), (key, _) in OPERATORS.items():
            if of_left == left and _known(right) and operators.is_supported(key):
                by_type[_name(right)].append(name)
    rows = []
    for shown, by_right in found.items():
        grouped: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for shown_right, names in by_right.items():
            grouped[tuple(dict.fromkeys(names))].append(shown_right)
        rows += [
            f"| {shown} | {_code(operators_)} | {', '.join(sorted(rights))} |"
            for operators_, rights in sorted(grouped.items(), key=lambda item: sorted(item[1]))
        ]
    return rows


def cast_rows() -> list[str]:
    """One line for each type that can be cast."""
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in CASTS:
        known = source != target and {source, target} <= PARSERS.keys()
        if known and operators.has_cast((source, target), operators.NEWEST):
            targets[type_name(source)].append(type_name(target))
    return [f"| {source} | {', '.join(sorted(found))} |" for source, found in targets.items()]


def modifier_rows() -> list[str]:
    """The types that take a modifier."""
    return [f"| {', '.join(type_name(oid) for oid in operators.length_types())} |"]


def function_rows() -> list[str]:
    """One line for each type of a first argument, with the functions that take it."""
    found: dict[str, dict[str, str]] = {}
    for first in (0, *_scalar_types(), *_array_types(), *POLYMORPHIC):
        names = found.setdefault(_name(first) if first else "(none)", {})
        for name, overloads in FUNCTIONS.items():
            these = [
                (key, arguments)
                for arguments, key, *_ in overloads
                if (arguments[0] if arguments else 0) == first and not _is_behind(name, key)
            ]
            supported = [arguments for key, arguments in these if operators.is_supported(key)]
            if supported and len(supported) == len(these):
                names[name] = f"`{name}`"
            elif supported:
                names[name] = ", ".join(
                    f"`{name}({', '.join(map(_name, arguments))})`" for arguments in supported
                )
    return [f"| {shown} | {', '.join(names.values())} |" for shown, names in found.items() if names]


def _array_types() -> list[int]:
    return [array for _, array in TYPES.values() if array in PARSERS]


def _is_behind(name: str, key: str) -> bool:
    """A function that is there for an operator, a cast or an index, and is not in the manual."""
    if name in _DOCUMENTED:
        return False
    return _BEHIND.match(name) is not None or key in _BEHIND_OTHERS


TABLES: dict[str, Callable[[], list[str]]] = {
    "### Operators": operator_rows,
    "### Casts": cast_rows,
    "### Type modifiers": modifier_rows,
    "### Functions": function_rows,
}
"""Heading -> the rows of the table under it."""


def section(text: str, heading: str) -> tuple[int, int]:
    """Where the rows of the table under `heading` begin and end in `text`."""
    start = text.index(f"\n{heading}\n")
    start = text.index("\n| ---", start) + 1
    start = text.index("\n", start) + 1
    end = start
    while text.startswith("|", end):
        end = text.index("\n", end) + 1
    return start, end


def main() -> None:
    """Rewrite the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for heading, rows in TABLES.items():
        start, end = section(text, heading)
        text = text[:start] + "".join(f"{row}\n" for row in rows()) + text[end:]
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
