"""Tables that the definitions file names, as opposed to those published implicitly. Pure.

FOR ALL TABLES, FOR TABLES IN SCHEMA and publications of the database include tables that anybody
may create. A fault of such a table concerns that table alone, whereas a fault of a named one may be
a mistake in the file.
"""

from __future__ import annotations

from functools import cache

from gateway.definitions.model import Catalog, Definitions, Table

__all__ = ["Listed"]


class Listed:
    """Tables that the file names, by subscription."""

    def __init__(self, definitions: Definitions, catalog: Catalog) -> None:
        oids = {
            publication.name: {
                *(r.table_oid for r in catalog.publications[publication.name].relations),
                *(oid for name, oid in catalog.broken if name == publication.name),
            }
            for publication in definitions.publications
        }
        publications = {one.name: one.publications for one in definitions.subscriptions}

        @cache
        def named(subscription: str) -> frozenset[int]:
            names = publications[subscription]
            return frozenset[int]().union(*(oids.get(name, set()) for name in names))

        self._named = named

    def has(self, subscription: str, table: Table) -> bool:
        """Whether the file names `table`, or a tree that contains it, for `subscription`."""
        return not self._named(subscription).isdisjoint((table.oid, *table.ancestors))
