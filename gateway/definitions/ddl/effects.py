"""State of publications and partitions at a position of the stream, from DDL messages. Pure.

A message is authoritative for the objects that its statement altered, from its commit on. For all
others it has the state that its transaction saw. The first message whose transaction saw everything
committed before the start of the stream is the base: later commits are reflected in it, or come in
messages of their own. A transaction that has been open for long may have seen less. Until there is
a base, objects without a message stay as they were published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gateway.core.lsn import Lsn
from gateway.definitions.ddl.alterations import Alteration, has_types
from gateway.definitions.model import (
    Catalog,
    Definitions,
    Plan,
    Publication,
    Publish,
    PublishedRelation,
    Table,
)
from gateway.definitions.sql.expression import column_names

__all__ = [
    "DdlState",
    "apply_ddl",
    "as_published",
    "catalog_at",
    "concerns",
    "published_of",
    "untouched",
]


@dataclass(frozen=True, slots=True)
class DdlState:
    """Publications and trees at a position of the stream.

    Attributes:
        publications: Publications, by name; all others are as in the catalog.
        parents: OIDs of parents, by OID of the partition.
        trees: OIDs of trees whose partitions were listed by a message about the tree.
        lost: OIDs of trees whose message did not list the partitions: they are as in the catalog.
        excepted: OIDs of the tables that FOR ALL TABLES excludes, by publication; an earlier
            release's triggers do not report them.
        names: Names of publications that messages were about.
        tables: OIDs of tables that messages were about.
        has_base: Whether there has been a base message.
        refused: Texts of filters that cannot be checked: their tables are as in the catalog.
    """

    publications: Mapping[str, Publication] = field(default_factory=dict)
    parents: Mapping[int, int] = field(default_factory=dict)
    trees: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    excepted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    tables: frozenset[int] = frozenset()
    has_base: bool = False
    refused: frozenset[str] = frozenset()

    def knows(self, tree: int) -> bool:
        """Whether all partitions of a tree are in `parents`."""
        return tree in self.trees or (self.has_base and tree not in self.lost)

    def is_same(self, before: DdlState) -> bool:
        """Whether nothing has changed since `before`; False while that has no base."""
        return before.has_base and (
            (self.publications, self.excepted, self.parents, self.lost, self.refused)
            == (before.publications, before.excepted, before.parents, before.lost, before.refused)
        )


def apply_ddl(before: DdlState, now: Alteration, since: Lsn) -> DdlState:
    """Return the state after a message.

    Args:
        before: State until then.
        now: Content of the message.
        since: Position where the stream starts; later commits are in the stream.
    """
    is_base = not before.has_base and now.as_of is not None and now.as_of >= since
    ddl_state = _based_on(before, now) if is_base else before
    publications = {n: p for n, p in ddl_state.publications.items() if n not in now.names}
    excepted = {n: oids for n, oids in ddl_state.excepted.items() if n not in now.names}
    parents = {child: tree for child, tree in ddl_state.parents.items() if tree not in now.trees}
    if now.omits_state:
        publications = {
            name: publication
            for name, publication in publications.items()
            if now.tables.isdisjoint(r.table_oid for r in publication.relations)
        }
        trees, lost = ddl_state.trees - now.trees, ddl_state.lost | now.trees
    else:
        publications = {
            name: _with_tables(publication, now.publications.get(name), now.tables)
            for name, publication in publications.items()
        }
        publications |= {n: p for n, p in now.publications.items() if n in now.names}
        excepted |= {n: oids for n, oids in now.excepted.items() if n in now.names}
        parents |= {child: tree for child, tree in now.parents.items() if tree in now.trees}
        trees, lost = ddl_state.trees | now.trees, ddl_state.lost - now.trees
    return DdlState(
        publications=publications,
        parents=parents,
        trees=trees,
        lost=lost,
        excepted=excepted,
        names=ddl_state.names | now.names,
        tables=ddl_state.tables | now.tables,
        has_base=ddl_state.has_base,
        refused=ddl_state.refused,
    )


def _based_on(before: DdlState, base: Alteration) -> DdlState:
    """Adopt the state in a message, except for objects that earlier messages were about."""
    publications = {n: p for n, p in base.publications.items() if n not in before.names}
    excepted = {n: oids for n, oids in base.excepted.items() if n not in before.names}
    known = before.trees | before.lost
    parents = {child: tree for child, tree in base.parents.items() if tree not in known}
    return replace(
        before,
        publications={**publications, **before.publications},
        excepted={**excepted, **before.excepted},
        parents={**parents, **before.parents},
        has_base=True,
    )


def _with_tables(
    before: Publication, now: Publication | None, altered: Collection[int]
) -> Publication:
    """Replace altered tables by their current state, or remove them."""
    if not altered:
        return before
    present = {} if now is None else {r.table_oid: r for r in now.relations}
    relations = tuple(
        relation if relation.table_oid not in altered else present[relation.table_oid]
        for relation in before.relations
        if relation.table_oid not in altered or relation.table_oid in present
    )
    return replace(before, relations=relations)


def published_of(definitions: Definitions) -> frozenset[str]:
    """Return the names of the publications of all subscriptions."""
    return frozenset(name for s in definitions.subscriptions for name in s.publications)


def concerns(plan: Plan, now: Alteration, ddl_state: DdlState) -> bool:
    """Whether a message may change how subscriptions publish tables, or which rows these hold.

    Any role can alter its own objects again and again, and reading the catalog each time would
    delay everybody else.

    Args:
        plan: Plan in force.
        now: Content of the message.
        ddl_state: State after the message.
    """
    if now.names or now.types is None:
        return True
    ours = plan.tables.keys() | {table.oid for table in plan.held}
    if not ours.isdisjoint(now.tables | now.collated) or has_types(plan, now.types):
        return True
    return any(
        not ddl_state.has_base or not ours.isdisjoint(_above(ddl_state, oid)) for oid in now.trees
    )


def _above(ddl_state: DdlState, tree: int) -> Iterator[int]:
    seen: set[int] = set()
    above: int | None = tree
    while above is not None and above not in seen:
        yield above
        seen.add(above)
        above = ddl_state.parents.get(above)


def untouched(
    before: Plan, now: Plan, ddl_state: DdlState, gone: Collection[int]
) -> set[tuple[str, int]]:
    """Return relations that `now` publishes differently although no message was about them.

    The result has subscription and OID of the relation, and is empty once there is a base. Without
    one, a difference may stem from an alteration that the catalog already has and whose message is
    still to come.

    Args:
        before: Plan until now.
        now: Plan from the current catalog, as far as `ddl_state` does not override it.
        ddl_state: State from messages so far.
        gone: OIDs of relations that were dropped.
    """
    if ddl_state.has_base:
        return set()
    publications = {s.name: frozenset(s.publications) for s in now.subscriptions}
    after = {(p.subscription, p.relation_oid): p for p in now.publishes}
    held = {(table.subscription, table.oid) for table in now.held}
    differing = set()
    for publish in before.publishes:
        pair = (publish.subscription, publish.relation_oid)
        new = after.get(pair)
        if publish == new or (publish.subscription, publish.target_oid) in held:
            continue
        ancestors = before.tables[publish.relation_oid].ancestors
        family = {publish.relation_oid, publish.target_oid, *ancestors}
        if not family.isdisjoint(ddl_state.tables | ddl_state.trees | ddl_state.lost):
            continue
        named = publications.get(publish.subscription, frozenset())
        unnamed = named - ddl_state.names
        if unnamed == named or (unnamed and _is_of_others(publish, new, ddl_state.names, gone)):
            differing.add(pair)
    return differing


def _is_of_others(
    before: Publish, now: Publish | None, names: Collection[str], gone: Collection[int]
) -> bool:
    """Whether, as far as is known, none of the publications `names` has or had the relation."""
    if now is None:
        return before.relation_oid in gone
    filters = (*before.filters.values(), *now.filters.values())
    # Without a filter, nothing shows which publication publishes the rows.
    return (
        before.operations == now.operations
        and all(filters)
        and not any(clause.publication in names for clauses in filters for clause in clauses)
    )


def catalog_at(catalog: Catalog, ddl_state: DdlState, known: Mapping[int, Table]) -> Catalog:
    """Return `catalog` with publications and trees as at a position of the stream.

    Args:
        catalog: Current catalog.
        ddl_state: State at that position.
        known: Tables that have been published, by OID; used for tables that no longer exist.
    """
    tables = {**known, **catalog.tables}
    parents = {oid: t.ancestors[0] for oid, t in tables.items() if t.ancestors}
    parents = {child: tree for child, tree in parents.items() if not ddl_state.knows(tree)}
    tables = _with_trees(tables, {**parents, **ddl_state.parents})
    publications = {
        name: replace(
            found,
            relations=tuple(_relations(found, publication, tables, ddl_state.refused)),
            excepted=ddl_state.excepted.get(name, publication.excepted),
        )
        if (found := ddl_state.publications.get(name)) is not None
        else publication
        for name, publication in catalog.publications.items()
    }
    return replace(catalog, tables=tables, publications=publications)


def _relations(
    ddl_state: Publication, now: Publication, tables: Mapping[int, Table], refused: Collection[str]
) -> Iterator[PublishedRelation]:
    """Yield the tables of a publication at that position.

    A table whose filter is refused, or names a column that no longer exists, is as it is now.
    """
    present = {relation.table_oid: relation for relation in now.relations}
    for relation in ddl_state.relations:
        table = tables.get(relation.table_oid)
        if table is None:
            continue
        columns = {column.name for column in table.columns}
        if relation.where is None or (
            relation.where not in refused and columns.issuperset(column_names(relation.where))
        ):
            yield relation
        elif relation.table_oid in present:
            yield present[relation.table_oid]


def _with_trees(tables: Mapping[int, Table], parents: Mapping[int, int]) -> dict[int, Table]:
    leaves: dict[int, list[int]] = defaultdict(list)
    above: dict[int, tuple[int, ...]] = {}
    for oid, table in tables.items():
        chain: list[int] = []
        parent = parents.get(oid)
        while parent is not None and parent in tables and parent not in chain:
            chain.append(parent)
            if table.kind == "r":
                leaves[parent].append(oid)
            parent = parents.get(parent)
        above[oid] = tuple(chain)
    return {
        oid: replace(table, ancestors=above[oid], leaves=tuple(sorted(leaves[oid])))
        for oid, table in tables.items()
    }


def as_published(plan: Plan, before: Iterable[Publish]) -> Plan:
    """Return `plan` with its relations published as in `before`."""
    was = {(p.subscription, p.relation_oid, p.target_oid): p for p in before}
    return replace(
        plan,
        publishes=tuple(
            was.get((p.subscription, p.relation_oid, p.target_oid), p) for p in plan.publishes
        ),
    )
