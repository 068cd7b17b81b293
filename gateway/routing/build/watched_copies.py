"""Copies in progress, which receive the published changes of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.copy import ChunkedCopy
from gateway.definitions.model import Table, TableCopy
from gateway.routing.row.copied_rows import CopyRoute, CopyWatch

__all__ = ["WatchedCopies"]


class WatchedCopies:
    """Copies in progress, by table.

    Attributes:
        version: Another number after each change.
    """

    def __init__(self) -> None:
        self._by_table: dict[int, list[tuple[CopyRoute, ChunkedCopy]]] = {}
        self._whole: dict[int, dict[str, ChunkedCopy]] = {}  # by table, then by subscription
        self.version = 0

    @property
    def tables(self) -> frozenset[int]:
        """OIDs of the tables that are being copied."""
        return frozenset(self._by_table)

    def add(self, route: CopyRoute, copy: ChunkedCopy, whole: Iterable[TableCopy]) -> None:
        """Add `copy`, read by `route`; `whole` are the tables that it copies completely."""
        self.version += 1
        self._by_table.setdefault(route.table.oid, []).append((route, copy))
        for each in whole:
            self._whole.setdefault(each.target_oid, {})[each.subscription] = copy

    def remove(self, route: CopyRoute, copy: ChunkedCopy) -> None:
        """Undo `add`; no effect if that was done before."""
        self.version += 1
        oid = route.table.oid
        left = [each for each in self._by_table.pop(oid, ()) if each[1] is not copy]
        if left:
            self._by_table[oid] = left
        whole = {name: each for name, each in self._whole.pop(oid, {}).items() if each is not copy}
        if whole:
            self._whole[oid] = whole

    def columns(self, target_oid: int) -> Iterator[str]:
        """Yield the columns read by the copies of a table."""
        for columns, _ in self.of([target_oid]):
            yield from columns

    def of(self, target_oids: Iterable[int]) -> Iterator[tuple[Sequence[str], ChunkedCopy]]:
        """Yield the copies of some tables, and the columns that they read."""
        for oid in target_oids:
            for route, copy in self._by_table.get(oid, ()):
                yield route.columns, copy

    def watches(self, target_oids: Iterable[int], names: Sequence[str]) -> Iterable[CopyWatch]:
        """Return the watches of the copies of some tables, for rows with columns `names`.

        Unless there are none now, they are those of the copies at the time of each iteration:
        changes are read ahead with the route of then, and a copy may go on in another job.
        """
        oids = sorted(target_oids)
        return () if self._by_table.keys().isdisjoint(oids) else _Watches(self, oids, names)

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


class _Watches:
    """Watches of the copies of some tables, made again when other copies are in progress."""

    def __init__(self, copies: WatchedCopies, oids: Sequence[int], names: Sequence[str]) -> None:
        self._copies = copies
        self._oids = oids
        self._names = names
        self._version = -1
        self._made: list[CopyWatch] = []

    def __iter__(self) -> Iterator[CopyWatch]:
        copies = self._copies
        if self._version != copies.version:
            self._version = copies.version
            self._made = [
                CopyWatch(copy, columns, self._names) for columns, copy in copies.of(self._oids)
            ]
        return iter(self._made)
