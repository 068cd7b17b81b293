"""Tables as psql prints them, side by side. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from devkit.demo.verdict import Row, TableRows

__all__ = ["format_row", "format_table", "side_by_side"]

_NUMBER = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?\Z")


def format_table(title: str, table: TableRows, *, most_rows: int) -> list[str]:
    """Lines of a table: title, head, rows, count. NULL shows as nothing, as in psql.

    Beyond `most_rows` rows, the last ones are left out, and a line says how many.
    """
    shown = table.rows[:most_rows]
    cells = [["" if value is None else value for value in row] for row in shown]
    widths = [
        max(len(name), *(len(row[at]) for row in cells), 1) if cells else max(len(name), 1)
        for at, name in enumerate(table.columns)
    ]
    numeric = [
        all(row[at] is None or _NUMBER.match(row[at] or "") for row in shown)
        for at in range(len(widths))
    ]
    lines = [
        title,
        "|".join(f" {name:^{width}} " for name, width in zip(table.columns, widths, strict=True)),
        "+".join("-" * (width + 2) for width in widths),
    ]
    lines += ["|".join(_cells(row, widths, numeric)) for row in cells]
    if left_out := len(table.rows) - len(shown):
        lines.append(f" ... and {left_out} more")
    count = len(table.rows)
    lines.append(f"({count} row{'' if count == 1 else 's'})")
    return [line.rstrip() for line in lines]


def _cells(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    return [
        f" {value:>{width}} " if right else f" {value:<{width}} "
        for value, width, right in zip(row, widths, numeric, strict=True)
    ]


def side_by_side(left: Sequence[str], right: Sequence[str], *, gap: int = 4) -> list[str]:
    """Put two blocks of lines beside each other, the right one in a column of its own."""
    width = max((len(line) for line in left), default=0) + gap
    return [f"{a:<{width}}{b}".rstrip() for a, b in zip_longest(left, right, fillvalue="")]


def format_row(row: Row) -> str:
    """Write a row as SQL would: ``(6, 999, NSW)``, NULL spelled out."""
    return "(" + ", ".join("NULL" if value is None else value for value in row) + ")"
