"""Membership of relations in publications, and their targets, by pgoutput's own rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.definitions.model import (
    Catalog,
    FilterClause,
    Operation,
    Publication,
    PublishedRelation,
    Table,
)

__all__ = ["Entry", "Membership"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Combined membership of one relation in a set of publications.

    Attributes:
        target: Table as which the relation is published.
        operations: Operations of all publications that contain the relation.
        publications: Publications whose filters and column lists apply: those that publish it as
            `target`.
    """

    target: Table
    operations: frozenset[Operation]
    publications: tuple[Publication, ...]


class Membership:
    """Membership of the tables of one catalog in its publications."""

    def __init__(self, catalog: Catalog) -> None:
        self.tables = catalog.tables
        self.publications = catalog.publications
        self.publishes_generated = catalog.publishes_generated
        self._relations: dict[str, dict[int, PublishedRelation]] = {
            publication.name: {relation.table_oid: relation for relation in publication.relations}
            for publication in catalog.publications.values()
        }
        self._copied: dict[str, frozenset[int]] = {}

    def relation(self, publication: Publication, oid: int) -> PublishedRelation | None:
        """Return the entry of a table named by FOR TABLE, or None."""
        return self._relations[publication.name].get(oid)

    def holds(self, publication: Publication, oid: int) -> bool:
        """Whether the table itself is in the publication, by name or by schema."""
        return (
            oid in self._relations[publication.name]
            or self.tables[oid].schema in publication.schemas
        )

    def _is_excepted(self, publication: Publication, table: Table) -> bool:
        """Whether FOR ALL TABLES excludes a table, by itself or as part of a tree.

        Source: "CREATE PUBLICATION" in the manual of PostgreSQL 19.
        """
        return not publication.excepted.isdisjoint((table.oid, *table.ancestors))

    def topmost_ancestor(self, publication: Publication, table: Table) -> tuple[int, int] | None:
        """Return the topmost ancestor in the publication, and its level above `table`, or None.

        Source: GetTopMostAncestorInPublication in pg_publication.c.
        """
        found = None
        for level, ancestor in enumerate(table.ancestors, 1):
            if self.holds(publication, ancestor):
                found = (ancestor, level)
        return found

    def reached_as(self, publication: Publication, table: Table) -> tuple[int, int] | None:
        """Return the target of `table` and its level above `table`; None if not published.

        Source: get_rel_sync_entry in pgoutput.c.
        """
        own = (table.oid, 0)
        if self._is_excepted(publication, table):
            return None
        if publication.all_tables:
            if publication.via_root and table.ancestors:
                return table.ancestors[-1], len(table.ancestors)
            return own
        above = self.topmost_ancestor(publication, table)
        if above is not None:
            return above if publication.via_root else own
        return own if self.holds(publication, table.oid) else None

    def entry(self, publications: Iterable[Publication], table: Table) -> Entry | None:
        """Return how `publications` of one subscription publish `table`.

        The highest ancestor over all publications is the target. Publications that name a lower
        one contribute only their operations.

        Source: get_rel_sync_entry in pgoutput.c.
        """
        target, level = table.oid, 0
        operations: set[Operation] = set()
        applicable: list[Publication] = []
        is_published = False
        for publication in publications:
            reached = self.reached_as(publication, table)
            if reached is None or (table.kind == "p" and not publication.via_root):
                continue
            is_published = True
            operations |= publication.operations
            if reached[1] < level:
                continue
            if reached[1] > level:
                target, level = reached
                applicable = []
            applicable.append(publication)
        if not is_published:
            return None
        return Entry(self.tables[target], frozenset(operations), tuple(applicable))

    def clause(self, publication: Publication, target: Table) -> FilterClause | None:
        """Return the filter that applies to `target`; FOR ALL TABLES and IN SCHEMA have none.

        Source: pgoutput_row_filter_init in pgoutput.c, pg_get_publication_tables in
        pg_publication.c.
        """
        if publication.all_tables or target.schema in publication.schemas:
            return None
        relation = self.relation(publication, target.oid)
        if relation is None or relation.where is None:
            return None
        return FilterClause(publication.name, target.oid, relation.where, relation.formula)

    def columns(self, publication: Publication, target: Table) -> tuple[str, ...] | None:
        """Return the column list that applies to `target`, or None.

        Source: check_and_fetch_column_list in pg_publication.c.
        """
        if publication.all_tables:
            return None
        relation = self.relation(publication, target.oid)
        return None if relation is None else relation.columns

    def copied(self, publications: Sequence[Publication]) -> list[Table]:
        """Return the tables that a subscription to `publications` copies, in order of their names.

        Source: fetch_table_list in subscriptioncmds.c, pg_get_publication_tables and
        filter_partitions in pg_publication.c.
        """
        oids = {oid for publication in publications for oid in self._listed(publication)}
        if any(publication.via_root for publication in publications):
            oids = {oid for oid in oids if oids.isdisjoint(self.tables[oid].ancestors)}
        return sorted((self.tables[oid] for oid in oids), key=lambda t: (t.schema, t.name))

    def copies(self, publication: Publication, oid: int) -> bool:
        """Whether a subscription to this publication alone would copy a table."""
        found = self._copied.get(publication.name)
        if found is None:
            found = frozenset(table.oid for table in self.copied([publication]))
            self._copied[publication.name] = found
        return oid in found

    def _listed(self, publication: Publication) -> set[int]:
        """Return the tables of one publication: roots under via_root, otherwise their leaves."""
        if publication.all_tables:
            named = {
                oid
                for oid, table in self.tables.items()
                if not (publication.via_root and table.ancestors)
                and not self._is_excepted(publication, table)
            }
        else:
            named = {
                oid for oid, table in self.tables.items() if table.schema in publication.schemas
            } | self._relations[publication.name].keys()
        if publication.via_root:
            return named
        listed: set[int] = set()
        for oid in named:
            table = self.tables[oid]
            listed.update(table.leaves if table.kind == "p" else (oid,))
        return listed
