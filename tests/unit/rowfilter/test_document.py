"""docs/row-filters.md lists what is supported; it must be what is supported."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from gateway.pgtypes.catalog import CASTS, OPERATORS
from gateway.rowfilter import operators
from gateway.rowfilter.types import PARSERS, type_name

DOCUMENT = Path(__file__).parents[3] / "docs" / "row-filters.md"


def operator_rows() -> list[str]:
    """One line for each pair of types, or prefix, with its operators."""
    found: dict[int, dict[tuple[str, ...], list[str]]] = {}
    for left in (0, *PARSERS):
        by_right: dict[int, list[str]] = defaultdict(list)
        for (name, of_left, right), (function, _) in OPERATORS.items():
            if of_left == left and right in PARSERS and function in operators.OPERATIONS:
                by_right[right].append(name)
        grouped: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for right, names in by_right.items():
            grouped[tuple(names)].append(type_name(right))
        found[left] = grouped
    return [
        f"| {type_name(left) if left else ''} | {code(names)} | {', '.join(sorted(rights))} |"
        for left, grouped in found.items()
        for names, rights in sorted(grouped.items(), key=lambda item: sorted(item[1]))
    ]


def code(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`".replace("|", "\\|") for name in names)


def cast_rows() -> list[str]:
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in CASTS:
        known = source != target and {source, target} <= PARSERS.keys()
        if known and operators.has_cast((source, target)):
            targets[type_name(source)].append(type_name(target))
    return [f"| {source} | {', '.join(sorted(found))} |" for source, found in targets.items()]


def rows_of(heading: str) -> list[str]:
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"{heading}\n")[2].partition("\n#")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][2:]


def test_the_table_of_operators_is_true() -> None:
    assert rows_of("### Operators") == operator_rows()


def test_the_table_of_casts_is_true() -> None:
    assert rows_of("### Casts") == cast_rows()
