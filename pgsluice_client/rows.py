"""The rows of one table, as PostgreSQL has them after the same changes.

Rules: an update of a row that is not there is skipped, with a changed key, too; what an update did
not send is the old row's; a row of a copy replaces that of its key; a truncate, and the beginning
of a copy, leaves nothing; a table without a key has as many equal rows as PostgreSQL. Rows follow
columns that are added, renamed and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from pgsluice_client.changes import Change, Column, Row
from pgsluice_client.errors import ReadError
from pgsluice_client.keys import identity
from pgsluice_client.values import from_text

__all__ = ["TableRows"]

_COLUMNS: Final = ""
"""Key of the store under which the columns are; that of a row is never empty."""


class TableRows:
    """Rows of one table.

    Args:
        store: Mapping that keeps the rows: lists of equal rows by a text that identifies them, and
            one entry besides, of columns. A new dict if left out; give another mapping, of a
            database for instance, to keep rows and position together. Lists are replaced, never
            changed.
    """

    def __init__(self, store: MutableMapping[str, list[Row]] | None = None) -> None:
        self._store: MutableMapping[str, list[Row]] = {} if store is None else store
        self._columns: tuple[Column, ...] | None = None

    def __iter__(self) -> Iterator[Row]:
        return (row for key, rows in self._store.items() if key != _COLUMNS for row in rows)

    def apply(self, change: Change) -> None:
        """Apply a change of this table; changes come in the order of their transactions.

        Raises:
            ReadError: rows from before a new column have a value that cannot be read.
        """
        if change.op == "t":
            self._store.clear()
            self._columns = None
        if self._columns is not change.columns:
            self._follow(change.columns)
        after = change.after
        if change.op == "u":
            old = self._remove(change.old_key, change.before, change.columns)
            if old is None or after is None:
                return
            after = after | {name: old[name] for name in change.unchanged}
        elif change.op == "d":
            self._remove(change.key, change.before, change.columns)
        if after is not None:
            place = _place(change.key, after, change.columns)
            equal = [] if change.key is not None else self._store.get(place, [])
            self._store[place] = [*equal, after]

    def _remove(
        self, key: Row | None, before: Row | None, columns: tuple[Column, ...]
    ) -> Row | None:
        """Remove the row of a key; without a key one that equals `before`, the same if possible."""
        if key is None and before is None:
            return None
        place = _place(key, before or {}, columns)
        rows = list(self._store.get(place, ()))
        if not rows:
            return None
        old = rows.pop(rows.index(before) if before in rows else 0)
        if rows:
            self._store[place] = rows
        else:
            del self._store[place]
        return old

    def _follow(self, columns: tuple[Column, ...]) -> None:
        """Bring the rows that are there to the columns of the next change."""
        known: dict[str, int | None] = self._store.get(_COLUMNS, [{}])[0]
        now = {column.name: column.number for column in columns}
        if known != now:
            if known:
                self._rewrite(known, columns)
            self._store[_COLUMNS] = [now]
        self._columns = columns

    def _rewrite(self, known: dict[str, int | None], columns: tuple[Column, ...]) -> None:
        old = {column.name: _old_name(column, known) for column in columns}
        made = {c.name: _missing(c) for c in columns if old[c.name] is None}
        found = [(place, rows) for place, rows in self._store.items() if place != _COLUMNS]
        self._store.clear()
        for place, rows in found:
            for row in rows:
                changed = {name: made[name] if of is None else row[of] for name, of in old.items()}
                if not place.startswith(_KEYED):
                    place = _place(None, changed, columns)
                self._store[place] = [*self._store.get(place, ()), changed]


_KEYED: Final = "key "


def _place(key: Row | None, row: Row, columns: tuple[Column, ...]) -> str:
    if key is None:
        return f"row {identity(row, columns)}"
    return f"{_KEYED}{identity(key, [column for column in columns if column.name in key])}"


def _old_name(column: Column, known: dict[str, int | None]) -> str | None:
    """Return the name that a column had; None if it is a new one."""
    if column.number is not None:
        for name, number in known.items():
            if number == column.number:
                return name
    no_number = column.number is None or known.get(column.name) is None
    return column.name if column.name in known and no_number else None


def _missing(column: Column) -> Any:
    if column.missing is None:
        return None
    try:
        return from_text(column.missing, column.avro)
    except ValueError as error:
        raise ReadError(
            f"column {column.name}: the value of rows from before it cannot be read: {error}",
            hint="copy the table again (pgsluice copy) and read from there",
        ) from error
