"""Copies in progress, which receive the published changes of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.copy import ChunkedCopy
from gateway.definitions.model import Table, TableCopy
from gateway.routing.row.copied_rows import CopyRoute, CopyWatch

__all__ = ["WatchedCopies"]


class WatchedCopies:
    """Copies in progress, by table."""

    def __init__(self) -> None:
        self._by_table: dict[int, list[tuple[CopyRoute, ChunkedCopy]]] = {}
        self._whole: dict[int, dict[str, ChunkedCopy]] = {}  # by table, then by subscription

    @property
    def tables(self) -> frozenset[int]:
        """OIDs of the tables that are being copied."""
        return frozenset(self._by_table)

    def add(self, route: CopyRoute, copy: ChunkedCopy, whole: Iterable[TableCopy]) -> None:
        """Add `copy`, read by `route`; `whole` are the tables that it copies completely."""
        self._by_table.setdefault(route.table.oid, []).append((route, copy))
        for each in whole:
            self._whole.setdefault(each.target_oid, {})[each.subscription] = copy

    def remove(self, route: CopyRoute, copy: ChunkedCopy) -> None:
        """Undo `add`; no effect if that was done before."""
        oid = route.table.oid
        left = [each for each in self._by_table.pop(oid, ()) if each[1] is not copy]
        if left:
            self._by_table[oid] = left
        whole = {name: each for name, each in self._whole.pop(oid, {}).items() if each is not copy}
        if whole:
            self._whole[oid] = whole

    def columns(self, target_oid: int) -> Iterator[str]:
        """Yield the columns read by the copies of a table."""
        for route, _ in self._by_table.get(target_oid, ()):
            yield from route.columns

    def watches(self, target_oids: Iterable[int], names: Sequence[str]) -> list[CopyWatch]:
        """Return the watches of the copies of some tables, for rows with columns `names`."""
        return [
            CopyWatch(copy, route.columns, names)
            for target in sorted(target_oids)
            for route, copy in self._by_table.get(target, ())
        ]

    def truncate(self, oids: Sequence[int], xid: int, tables: Mapping[int, Table]) -> None:
        """Pass a TRUNCATE that names `oids` to the copies; `tables` are all tables by OID."""
        named = frozenset(oids)
        for target_oid, watched in self._by_table.items():
            leaves = tables[target_oid].leaves
            if target_oid in named or (leaves and named.issuperset(leaves)):
                for _, copy in watched:
                    copy.truncate(xid)

    def rewrite(self, target: tuple[str, int], xid: int | None) -> bool:
        """Pass the rewrite of a table by transaction `xid` to its copy.

        Returns:
            Whether the copy continues; False if there is none, or if it has rows from before the
            rewrite.
        """
        subscription, oid = target
        copy = self._whole.get(oid, {}).get(subscription)
        return copy is not None and xid is not None and copy.rewrite(xid)
