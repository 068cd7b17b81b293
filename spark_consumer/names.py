"""Names: of topics, of tables' folders, of columns inside SQL text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from schemas.topic_names import topic_part

__all__ = [
    "HISTORY",
    "free_name",
    "history_name",
    "lsn_number",
    "lsn_text",
    "quoted",
    "table_folder",
    "transaction_topic",
]

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
HISTORY: Final = "__history"
"""End of the name of a history's folder; the rest is that of its table."""


def transaction_topic(subscription: str) -> str:
    """Return the topic of a subscription's markers."""
    return f"{topic_part(subscription)}.transaction"


def table_folder(warehouse: str, subscription: str, name: str) -> str:
    """Return the folder of the table ``schema.table``, each in the form of `topic_part`."""
    return "/".join([warehouse.rstrip("/"), topic_part(subscription), *name.split(".")])


def history_name(name: str) -> str:
    """Return the name of a table's history, from that of the table, ``schema.table``."""
    return name + HISTORY


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
