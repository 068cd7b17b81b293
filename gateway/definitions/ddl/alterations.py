"""Contents of DDL messages, and their relevance to a plan. Pure.

The event triggers of `gateway.source.provisioning.event_trigger` write the messages. Each of them
names what its statement altered. The rest is the state that its transaction saw, possibly long
before the message is received; `Alteration.as_of` is the position of that state.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.core.lsn import Lsn, parse_lsn
from gateway.definitions.ddl.authentication import unreadable
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
"""Prefix of the logical messages about publications, partitions and types."""
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
        omits_state: Whether the message omits the current state of the altered publications, tables
            and trees; ``unsaid`` in the message.
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
    omits_state: bool = False
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
        content: Authenticated body of the message.
        wanted: Names of the publications to keep; others are ignored.

    Raises:
        UntrustedMessageError: it cannot be parsed.
    """
    try:
        body = json.loads(content)
        altered = body["altered"]
        as_of, types = body.get("as_of"), altered.get("types")
        publications = {name: p for name, p in body["publications"].items() if name in wanted}
        return Alteration(
            names=frozenset(map(_text, altered["publications"])).intersection(wanted),
            tables=frozenset(map(_oid, altered["tables"])),
            trees=frozenset(map(_oid, altered["trees"])),
            types=None if types is None else frozenset(map(_oid, types)),
            collated=frozenset(map(_oid, altered.get("collated", []))),
            as_of=None if as_of is None else parse_lsn(as_of),
            omits_state=_bool(body.get("unsaid", False)),
            publications={name: _publication(name, p) for name, p in publications.items()},
            excepted={
                name: frozenset(map(_oid, p["excepted"]))
                for name, p in publications.items()
                if "excepted" in p
            },
            parents={_oid(child): _oid(parent) for child, parent in body["parents"]},
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
    oids = {oid for c in table.columns for oid in (c.type_oid, c.base_type_oid)}
    if not oids.isdisjoint(types):
        return True
    if table.shape is None:
        return any(oid >= _FIRST_NORMAL_OID for oid in oids)
    parts = (oid for types_of in table.shape.types.values() for oid in types_of)
    return any(oid.isdecimal() and int(oid) in types for oid in parts)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("a text is expected")
    value.encode()  # no half of a surrogate pair
    return value


def _oid(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _OIDS:
        raise TypeError("an OID is expected")
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false is expected")
    return value


def _publication(name: str, fields: Mapping[str, Any]) -> Publication:
    return Publication(
        name=name,
        operations=frozenset(map(Operation, fields["operations"])),
        via_root=_bool(fields["via_root"]),
        all_tables=_bool(fields["all_tables"]),
        schemas=tuple(sorted(map(_text, fields["schemas"]))),
        relations=tuple(
            PublishedRelation(
                _oid(oid),
                None if where is None else _text(where),
                None if columns is None else tuple(map(_text, columns)),
                None,
            )
            for oid, where, columns in fields["tables"]
        ),
        generated=_bool(fields["generated"]),
    )
