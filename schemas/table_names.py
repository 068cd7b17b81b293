"""Qualified names of tables as operators give them to commands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["quoted_name"]

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_$]*")


def quoted_name(parts: Iterable[str]) -> str:
    """Return a qualified name with quotes where it needs them.

    Commands read it back as PostgreSQL would: without quotes another table could have that name.
    """
    return ".".join(
        part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in parts
    )
