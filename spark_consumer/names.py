"""Names: of topics, of tables' folders, of columns inside SQL text."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["lsn_text", "part", "quoted", "table_folder", "transaction_topic"]

_NOT_PLAIN: Final = re.compile(r"-x|[^A-Za-z0-9_-]")


def part(identifier: str) -> str:
    """Write an identifier as the topic contract does: invertible, of ``[A-Za-z0-9_-]`` alone.

    Folders use the same form, so that any identifier is safe in a path and between backticks.
    """
    return _NOT_PLAIN.sub(
        lambda match: "-x002Dx" if match[0] == "-x" else f"-x{ord(match[0]):04X}-", identifier
    )


def transaction_topic(subscription: str) -> str:
    """The topic of a subscription's markers."""
    return f"{part(subscription)}.transaction"


def table_folder(warehouse: str, subscription: str, name: str) -> str:
    """The folder of a table that is known as ``schema.table``, each in the form of `part`."""
    return "/".join([warehouse.rstrip("/"), part(subscription), *name.split(".")])


def quoted(column: str) -> str:
    """Write a column name as an identifier in Spark SQL."""
    return "`" + column.replace("`", "``") + "`"


def lsn_text(lsn: int | None) -> str:
    """An LSN as PostgreSQL writes it."""
    return "none" if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
