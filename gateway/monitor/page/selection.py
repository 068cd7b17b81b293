"""Which tables the page shows: search, filter and portion, as in the query of its address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode

__all__ = ["LONGEST", "PORTION", "Selection", "searched"]

PORTION: Final = 100
"""Number of tables on one page."""
LONGEST: Final = 500
"""Number of characters of a search: subscription, table and topic."""
_MOST_FIELDS: Final = 16
_MOST_DIGITS: Final = 9
_URGENCY: Final = {"held": 0, "missing": 0, "ready": 2}


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of tables.

    Attributes:
        search: Text that subscription, table or topic contain, in any case.
        attention: Whether only tables that are not ready are shown.
        start: Number of tables before the first one shown.
    """

    search: str = ""
    attention: bool = False
    start: int = 0

    @classmethod
    def parse(cls, query: str) -> Self:
        """Return the selection of a query; whatever cannot be read selects nothing."""
        try:
            found = parse_qs(query, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return cls()
        start = found.get("start", ["0"])[0]
        is_number = start.isascii() and start.isdigit() and len(start) <= _MOST_DIGITS
        return cls(
            found.get("q", [""])[0].strip()[:LONGEST],
            found.get("attention", [""])[0] == "1",
            int(start) if is_number else 0,
        )

    def query(self, *, search: str | None = None, start: int = 0) -> str:
        """Return the query of another portion or search with the same filter."""
        text = self.search if search is None else search
        fields = {
            "q": text.encode(errors="replace"),
            "attention": "1" if self.attention and search is None else "",
            "start": str(start) if start else "",
        }
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    def among(self, tables: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return all selected tables, those that need attention first."""
        wanted = self.search.casefold()
        found = [
            table
            for table in tables
            if not (self.attention and table["state"] == "ready")
            and (not wanted or wanted in searched(table).casefold())
        ]
        return sorted(found, key=lambda table: _URGENCY.get(table["state"], 1))

    def portion(self, found: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
        """Return where the portion to show begins and ends; the last one for a start beyond it."""
        last = max(0, len(found) - 1) // PORTION * PORTION
        start = min(self.start, last)
        return start, min(len(found), start + PORTION)


def searched(table: Mapping[str, Any]) -> str:
    """Return the text of a table that a search looks at."""
    topic = table.get("topic") or ""
    return f"{table['subscription']} {table['table']} {topic}"
