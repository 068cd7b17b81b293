"""Names: of topics, of tables' folders, of columns inside SQL text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = [
    "HISTORY",
    "free_name",
    "history_name",
    "lsn_number",
    "lsn_text",
    "part",
    "quoted",
    "source_name",
    "table_folder",
    "transaction_topic",
]

_NOT_PLAIN: Final = re.compile(r"-x|[^A-Za-z0-9_-]")
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_WRITTEN: Final = re.compile(r"-x002Dx|-x((?!D[89A-F]..-)(?:10|[0-9A-F])?[0-9A-F]{4})-")
"""Escapes that `part` writes; others, of no character or of half of one, are left as they are."""

HISTORY: Final = "__history"
"""End of the name of a history's folder; the rest is that of its table."""


def part(identifier: str) -> str:
    """Write an identifier as the topic contract does: invertible, of ``[A-Za-z0-9_-]`` alone.

    Folders use the same form, so that any identifier is safe in a path and between backticks.
    """
    return _NOT_PLAIN.sub(
        lambda match: "-x002Dx" if match[0] == "-x" else f"-x{ord(match[0]):04X}-", identifier
    )


def transaction_topic(subscription: str) -> str:
    """Return the topic of a subscription's markers."""
    return f"{part(subscription)}.transaction"


def table_folder(warehouse: str, subscription: str, name: str) -> str:
    """Return the folder of the table ``schema.table``, each in the form of `part`."""
    return "/".join([warehouse.rstrip("/"), part(subscription), *name.split(".")])


def history_name(name: str) -> str:
    """Return the name of a table's history, from that of the table, ``schema.table``."""
    return name + HISTORY


def source_name(name: str) -> str:
    """Return the source's name of a table whose schema and table are written by `part`.

    Any text is accepted: a marker of somebody else's may name what no gateway writes.
    """
    return _WRITTEN.sub(lambda match: chr(int(match[1], 16)) if match[1] else "-x", name)


def quoted(column: str) -> str:
    """Write a column name as an identifier in Spark SQL."""
    return "`" + column.replace("`", "``") + "`"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a column name that differs from all `taken` ones, whatever their case."""
    lower = {name.casefold() for name in taken}
    while wanted.casefold() in lower:
        wanted += "_"
    return wanted


def lsn_number(text: str) -> int | None:
    """Return an LSN that PostgreSQL has printed as a number; None if it is none."""
    found = _LSN.fullmatch(text)
    return None if found is None else (int(found[1], 16) << 32) + int(found[2], 16)


def lsn_text(lsn: int | None) -> str:
    """Return an LSN as PostgreSQL writes it."""
    return "none" if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
