"""Contents of DDL messages, and whether one matters. Pure.

The event triggers of `gateway.source.provisioning.event_trigger` write them. Each names what its
statement altered. Everything else in it is as its transaction saw it, possibly long before the
message is received: `Alteration.as_of` says as of which position.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.core.lsn import Lsn, parse_lsn
from gateway.definitions.ddl.messages import unreadable
from gateway.definitions.model import Operation, Plan, Publication, PublishedRelation, Table

__all__ = [
    "PREFIX",
    "PREFIXES",
    "Alteration",
    "has_types",
    "read_alteration",
    "rewritten",
]

PREFIX: Final = "pgsluice.publications"
"""Prefixes of the logical messages about publications, partitions and types."""
PREFIXES: Final = frozenset({PREFIX, "pgsluice.rewritten"})
"""Prefixes of all DDL messages."""

_OIDS: Final = 1 << 32
_FIRST_NORMAL_OID: Final = 16384
"""FirstNormalObjectId in PostgreSQL's transam.h."""
_UNREADABLE: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """Content of one DDL message.

    Attributes:
        names: Names of the publications that were altered, created or dropped.
        tables: OIDs of tables whose filter or column list in a publication may have changed, or
            that left a publication together with a column. Their transaction holds a lock on them
            that keeps others from altering a publication that has them.
        trees: OIDs of partitioned tables whose partitions may have changed.
        types: OIDs of altered types; None if an earlier release's triggers do not name them.
        collated: OIDs of tables with a column whose collation was altered.
        as_of: Position before which all commits are reflected in `publications` and `parents`, for
            all publications and trees; None if only the altered objects in them are reliable.
        unsaid: Whether the message omits the current state of the altered publications, tables and
            trees.
        publications: Requested publications as the statement left them, by name.
        excepted: OIDs of the tables that FOR ALL TABLES excludes, by publication; an earlier
            release's triggers do not report them.
        parents: OIDs of the trees, by OID of the partition.
    """

    names: frozenset[str]
    tables: frozenset[int] = frozenset()
    trees: frozenset[int] = frozenset()
    types: frozenset[int] | None = frozenset()
    collated: frozenset[int] = frozenset()
    as_of: Lsn | None = None
    unsaid: bool = False
    publications: Mapping[str, Publication] = field(default_factory=dict)
    excepted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    parents: Mapping[int, int] = field(default_factory=dict)

    @property
    def filters(self) -> set[str]:
        """Texts of all row filters."""
        relations = (r for p in self.publications.values() for r in p.relations)
        return {relation.where for relation in relations if relation.where is not None}


def read_alteration(content: bytes, wanted: Collection[str]) -> Alteration:
    """Parse the body of a message about publications, partitions or types.

    Args:
        content: Body, already verified as written by the event triggers.
        wanted: Names of publications; others are ignored.

    Raises:
        UntrustedMessageError: it cannot be parsed.
    """
    try:
        said = json.loads(content)
        altered = said["altered"]
        as_of, types = said.get("as_of"), altered.get("types")
        found = {name: p for name, p in said["publications"].items() if name in wanted}
        return Alteration(
            names=frozenset(map(_text, altered["publications"])).intersection(wanted),
            tables=frozenset(map(_oid, altered["tables"])),
            trees=frozenset(map(_oid, altered["trees"])),
            types=None if types is None else frozenset(map(_oid, types)),
            collated=frozenset(map(_oid, altered.get("collated", []))),
            as_of=None if as_of is None else parse_lsn(as_of),
            unsaid=_bool(said.get("unsaid", False)),
            publications={name: _publication(name, p) for name, p in found.items()},
            excepted={
                name: frozenset(map(_oid, p["excepted"]))
                for name, p in found.items()
                if "excepted" in p
            },
            parents={_oid(child): _oid(parent) for child, parent in said["parents"]},
        )
    except _UNREADABLE as error:
        raise unreadable(PREFIX, error) from None


def rewritten(content: bytes) -> frozenset[int]:
    """Return the OIDs of a rewritten table and of the trees that it belongs to.

    Raises:
        UntrustedMessageError: it cannot be parsed.
    """
    try:
        return frozenset(map(_oid, json.loads(content)["tables"]))
    except _UNREADABLE as error:
        raise unreadable("pgsluice.rewritten", error) from None


def has_types(plan: Plan, types: Collection[int]) -> bool:
    """Whether a column of a table of `plan` has, or may have, one of the types as a component."""
    return bool(types) and any(_may_have(table, types) for table in plan.tables.values())


def _may_have(table: Table, types: Collection[int]) -> bool:
    found = {oid for c in table.columns for oid in (c.type_oid, c.base_type_oid)}
    if not found.isdisjoint(types):
        return True
    if table.shape is None:
        return any(oid >= _FIRST_NORMAL_OID for oid in found)
    parts = (oid for types_of in table.shape.types.values() for oid in types_of)
    return any(oid.isdecimal() and int(oid) in types for oid in parts)


def _text(said: object) -> str:
    if not isinstance(said, str) or "\0" in said:
        raise TypeError("a text is expected")
    said.encode()  # no half of a surrogate pair
    return said


def _oid(said: object) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < _OIDS:
        raise TypeError("an OID is expected")
    return said


def _bool(said: object) -> bool:
    if not isinstance(said, bool):
        raise TypeError("true or false is expected")
    return said


def _publication(name: str, said: Mapping[str, Any]) -> Publication:
    return Publication(
        name=name,
        operations=frozenset(map(Operation, said["operations"])),
        via_root=_bool(said["via_root"]),
        all_tables=_bool(said["all_tables"]),
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
        generated=_bool(said["generated"]),
    )
