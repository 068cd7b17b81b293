"""What the stream itself tells of publications and partitions, where the source has it told. Pure.

The messages are written by the event triggers of `gateway.source.event_trigger`. Each has all as
its transaction saw it, and says what it has altered. What others have altered meanwhile may be in
it as it was; so the first message counts as a whole, and the others for what they have altered.
Messages of another kind name a table whose rows an ALTER TABLE has given other values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.definitions.ddl_messages import unreadable
from gateway.definitions.expression import column_names
from gateway.definitions.model import (
    Catalog,
    Operation,
    Plan,
    Publication,
    Publish,
    PublishedRelation,
    Table,
)

__all__ = [
    "PREFIX",
    "PREFIXES",
    "Told",
    "as_published",
    "as_told",
    "filters_of",
    "hear",
    "rewritten",
]

PREFIX: Final = "pgsluice.publications"
"""Of the logical messages about publications and partitions."""
PREFIXES: Final = frozenset({PREFIX, "pgsluice.rewritten"})
"""Of all of them."""


_OIDS: Final = 1 << 32
_UNREADABLE: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Told:
    """Publications and trees at a position of the stream.

    Attributes:
        publications: Of the database, by name.
        parents: Of its partitions, by OID.
        excepted: OIDs of what FOR ALL TABLES leaves out, by the publication's name; not of those
            of which an earlier release's triggers have told.
    """

    publications: Mapping[str, Publication]
    parents: Mapping[int, int]
    excepted: Mapping[str, frozenset[int]] = field(default_factory=dict)


def hear(before: Told | None, content: bytes) -> Told:
    """Return what counts after a message; `before`: None when it is the first.

    Raises:
        UnbelievedError: it does not read.
    """
    try:
        said = json.loads(content)
        publications = {name: _publication(name, p) for name, p in said["publications"].items()}
        excepted = {
            _text(name): frozenset(map(_oid, p["excepted"]))
            for name, p in said["publications"].items()
            if "excepted" in p
        }
        parents = {_oid(child): _oid(parent) for child, parent in said["parents"]}
        names = {_text(name) for name in said["altered"]["publications"]}
        tables = {_oid(oid) for oid in said["altered"]["tables"]}
        trees = {_oid(oid) for oid in said["altered"]["trees"]}
    except _UNREADABLE as error:
        raise unreadable(PREFIX, error) from None
    if before is None:
        return Told(publications, parents, excepted)
    heard = {
        name: _with_tables(publication, publications.get(name), tables)
        for name, publication in before.publications.items()
        if name not in names
    }
    heard |= {name: publications[name] for name in names & publications.keys()}
    kept = {child: parent for child, parent in before.parents.items() if parent not in trees}
    kept |= {child: parent for child, parent in parents.items() if parent in trees}
    left_out = {name: oids for name, oids in before.excepted.items() if name not in names}
    left_out |= {name: excepted[name] for name in names & excepted.keys()}
    return Told(heard, kept, left_out)


def rewritten(content: bytes) -> frozenset[int]:
    """Return the OIDs of a table whose rows have other values now, and of the trees that it is in.

    Raises:
        UnbelievedError: it does not read.
    """
    try:
        return frozenset(map(_oid, json.loads(content)["tables"]))
    except _UNREADABLE as error:
        raise unreadable("pgsluice.rewritten", error) from None


def _text(said: object) -> str:
    if not isinstance(said, str) or "\0" in said:
        raise TypeError("a text is expected")
    said.encode()  # no half of a surrogate pair
    return said


def _oid(said: object) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < _OIDS:
        raise TypeError("an OID is expected")
    return said


def filters_of(told: Told) -> set[str]:
    """Return the texts of all row filters."""
    relations = (r for publication in told.publications.values() for r in publication.relations)
    return {relation.where for relation in relations if relation.where is not None}


def _with_tables(
    before: Publication, now: Publication | None, altered: Collection[int]
) -> Publication:
    """Take the filters and column lists of altered tables; columns may be called otherwise now."""
    if now is None or not altered:
        return before
    found = {relation.table_oid: relation for relation in now.relations}
    return replace(
        before,
        relations=tuple(
            found.get(relation.table_oid, relation) if relation.table_oid in altered else relation
            for relation in before.relations
        ),
    )


def _publication(name: str, said: Mapping[str, Any]) -> Publication:
    return Publication(
        name=name,
        operations=frozenset(map(Operation, said["operations"])),
        via_root=bool(said["via_root"]),
        all_tables=bool(said["all_tables"]),
        schemas=tuple(sorted(map(_text, said["schemas"]))),
        relations=tuple(
            PublishedRelation(
                _oid(oid),
                None if where is None else _text(where),
                None if columns is None else tuple(map(_text, columns)),
                None,
            )
            for oid, where, columns in said["tables"]
        ),
        generated=bool(said["generated"]),
    )


def as_told(catalog: Catalog, told: Told, known: Mapping[int, Table]) -> Catalog:
    """Return `catalog` with publications and trees as they were told.

    Args:
        catalog: As of now.
        told: At a place of the stream.
        known: Tables by OID that have been published; those that are gone now are taken from it.
    """
    tables = _with_trees({**known, **catalog.tables}, told.parents)
    publications = {
        name: replace(
            found,
            relations=tuple(_relations(found, publication, tables)),
            excepted=told.excepted.get(name, publication.excepted),
        )
        if (found := told.publications.get(name)) is not None
        else publication
        for name, publication in catalog.publications.items()
    }
    return replace(catalog, tables=tables, publications=publications)


def _relations(
    told: Publication, now: Publication, tables: Mapping[int, Table]
) -> Iterator[PublishedRelation]:
    """The tables of a publication; as of now where a filter has columns that are gone."""
    present = {relation.table_oid: relation for relation in now.relations}
    for relation in told.relations:
        table = tables.get(relation.table_oid)
        if table is None:
            continue
        columns = {column.name for column in table.columns}
        if relation.where is None or columns.issuperset(column_names(relation.where)):
            yield relation
        elif relation.table_oid in present:
            yield present[relation.table_oid]


def _with_trees(tables: Mapping[int, Table], parents: Mapping[int, int]) -> dict[int, Table]:
    leaves: dict[int, list[int]] = defaultdict(list)
    above: dict[int, tuple[int, ...]] = {}
    for oid, table in tables.items():
        found: list[int] = []
        parent = parents.get(oid)
        while parent is not None and parent in tables and parent not in found:
            found.append(parent)
            if table.kind == "r":
                leaves[parent].append(oid)
            parent = parents.get(parent)
        above[oid] = tuple(found)
    return {
        oid: replace(table, ancestors=above[oid], leaves=tuple(sorted(leaves[oid])))
        for oid, table in tables.items()
    }


def as_published(plan: Plan, before: Iterable[Publish]) -> Plan:
    """Return `plan` with what it takes in the way in which it is taken `before`."""
    was = {(p.subscription, p.relation_oid, p.target_oid): p for p in before}
    return replace(
        plan,
        publishes=tuple(
            was.get((p.subscription, p.relation_oid, p.target_oid), p) for p in plan.publishes
        ),
    )
