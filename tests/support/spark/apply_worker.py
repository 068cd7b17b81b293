"""PostgreSQL's apply worker as a fold over dicts: the tests' own idea of what must come out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Any

Row = dict[str, Any]


class KeyedTable:
    """A table with a key: rows by the key's value, numerics compared as numbers."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.rows: dict[Hashable, Row] = {}

    def identity(self, row: Mapping[str, Any]) -> Hashable:
        return Decimal(row[self.key])

    def insert(self, row: Mapping[str, Any]) -> None:
        self.rows[self.identity(row)] = dict(row)

    def update(
        self, old: Mapping[str, Any], new: Mapping[str, Any], unchanged: Iterable[str] = ()
    ) -> None:
        row = self.rows.pop(self.identity(old), None)
        if row is None:
            return
        kept = set(unchanged)
        row |= {name: value for name, value in new.items() if name not in kept}
        self.rows[self.identity(row)] = row

    def delete(self, old: Mapping[str, Any]) -> None:
        self.rows.pop(self.identity(old), None)

    def truncate(self) -> None:
        self.rows.clear()

    def contents(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.rows.values()), key=repr)


class Multiset:
    """A table without a key: a list of rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def insert(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))

    def update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        if (place := self._find(old)) is not None:
            del self.rows[place]
            self.rows.append(dict(new))

    def delete(self, old: Mapping[str, Any]) -> None:
        if (place := self._find(old)) is not None:
            del self.rows[place]

    def truncate(self) -> None:
        self.rows.clear()

    def contents(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.rows), key=repr)

    def _find(self, old: Mapping[str, Any]) -> int | None:
        return next((i for i, row in enumerate(self.rows) if row == dict(old)), None)
