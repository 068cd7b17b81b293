"""Rebuild a subscriber table from its topic's records, as docs/envelope.md tells another team to.

Written from the contract alone, for tests that compare the result with a native subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.gateway.process import Read

Row = tuple[tuple[str, Any], ...]


class Rebuilt:
    """One subscriber table. `apply` takes records in the order of the topic.

    Args:
        identity: Columns that identify a row, where the record's key has others; none for all.
    """

    def __init__(self, identity: Sequence[str] | None = None) -> None:
        self._names = identity
        self._keyed: dict[Row, dict[str, Any]] = {}
        self._bag: list[dict[str, Any]] = []
        self._moving: tuple[bool, dict[str, Any]] | None = None

    def rows(self, columns: Iterable[str] | None = None) -> list[tuple[Any, ...]]:
        """Its rows as tuples, sorted; of `columns`, those that a row does not have are NULL."""
        rows = [*self._keyed.values(), *self._bag]
        if columns is None:
            return sorted((tuple(row.values()) for row in rows), key=repr)
        names = list(columns)
        return sorted((tuple(map(row.get, names)) for row in rows), key=repr)

    def apply(self, records: Iterable[Read]) -> Rebuilt:
        """Apply records; returns itself."""
        position = ("", -1)
        for record in records:
            assert record.position >= position, f"out of order at offset {record.offset}"
            position = record.position
            if record.value is not None:
                self._apply(record, record.value)
        return self

    def _apply(self, record: Read, value: dict[str, Any]) -> None:
        after, before = value["after"], value["before"]
        if record.op == "t":
            self._keyed.clear()
            self._bag.clear()
            return
        key = self._key(record, value)
        if key is None:
            self._apply_to_bag(record, before, after)
        elif record.op == "d":
            old = self._keyed.pop(key, None)
            if record.headers.get("rekey") == "old":
                self._moving = (old is not None, old or {})
        elif record.headers.get("rekey") == "new":
            assert self._moving is not None
            existed, old_row = self._moving
            if existed:
                self._keyed[key] = self._merge(old_row, value)
        elif record.op == "u":
            old_row = self._keyed.get(key, {})
            if old_row:
                self._keyed[key] = self._merge(old_row, value)
        else:
            self._keyed[key] = after

    def _key(self, record: Read, value: dict[str, Any]) -> Row | None:
        if self._names is not None:
            row = value["after"] or value["before"]
            return tuple((name, row[name]) for name in self._names) or None
        if record.key is None or self._is_whole_row(record, value):
            return None
        return tuple(record.key.items())

    def _is_whole_row(self, record: Read, value: dict[str, Any]) -> bool:
        row = value["after"] or value["before"]
        return value["source"]["identity"] == "f" and set(record.key or ()) == set(row)

    def _merge(self, old: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
        kept = {name: old[name] for name in value["unchanged"]}
        return {**value["after"], **kept}

    def _apply_to_bag(
        self, record: Read, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        if record.headers.get("rekey") == "new":
            assert self._moving is not None
            if not self._moving[0]:
                return
        elif before is not None:
            found = before in self._bag
            if found:
                self._bag.remove(before)
            self._moving = (found, {})
            if record.op == "u" and not found:
                return
        if after is not None:
            self._bag.append(after)
