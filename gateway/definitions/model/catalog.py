"""Tables and publications of the source database as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.core.errors import DefinitionError
from gateway.core.formula import Formula
from gateway.core.identifiers import one_line, quote_identifier
from gateway.definitions.model.statements import Operation, TableClause
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = [
    "Catalog",
    "Collation",
    "Column",
    "Element",
    "Parent",
    "Publication",
    "PublishedRelation",
    "Shape",
    "Table",
]


@dataclass(frozen=True, slots=True)
class Collation:
    """Properties of a text column's collation that decide what can be reproduced.

    Attributes:
        name: Name, qualified as PostgreSQL prints it, or ``default``.
        deterministic: Whether equal means equal bytes.
        c_order: Whether it sorts by the bytes of the UTF-8 text (``C``, ``POSIX``, builtin
            ``C.UTF-8``, ...).
    """

    name: str
    deterministic: bool
    c_order: bool


@dataclass(frozen=True, slots=True)
class Element:
    """Type of an array's items, under any domains.

    Attributes:
        type_name: ``format_type`` of the base type, or of the domain where that is none.
        type_kind: ``pg_type.typtype`` of the type named.
    """

    type_oid: int
    type_modifier: int
    type_name: str
    type_kind: str


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table in the source database; dropped columns are left out.

    Attributes:
        type_name: ``format_type(atttypid, atttypmod)``, for messages and schemas.
        base_type_oid: OID of the type under any domains; equals `type_oid` for other types.
        type_kind: ``pg_type.typtype`` of `type_oid`: b, c, d, e, p, r or m.
        generated: ``attgenerated``: '' , 's' (stored) or 'v' (virtual).
        missing: Value of the column in rows older than the column, as PostgreSQL prints it; None is
            NULL. Source: ``attmissingval``.
        computed: Whether rows older than the column may have different values in it: it has a
            volatile default, an identity, or is generated.
        element: Type of the items, if it is an array or a domain over one, with commas between
            items in its text; else None.
        base_type_name: ``format_type`` of the base type under the domain, or of an array of that
            under the domain of its items; empty without a domain, and over other kinds of types.
        labels: Labels of an enum, or of the enum of an array's items, in their order.
    """

    name: str
    attnum: int
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    base_type_modifier: int
    type_kind: str
    not_null: bool
    generated: str
    collation: Collation | None
    missing: str | None = None
    computed: bool = False
    element: Element | None = None
    base_type_name: str = ""
    labels: tuple[str, ...] = ()

    @property
    def base_name(self) -> str:
        """Name of the base type under any domains; empty for other kinds of types.

        Only a superuser can make a base type, so nobody else can give one the name of an
        extension's.
        """
        return self.base_type_name or (self.type_name if self.type_kind == "b" else "")


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a table in the catalog beyond those of `Column`.

    Attributes:
        files: ``relfilenode`` of the table and of its leaves, by OID.
        columns: Transaction that wrote the column's catalog row, and a digest of that row, by
            ``attnum``.
        types: Alterable parts of the column's type, by ``attnum``: by the OID of a type, digests of
            an enum's labels in the order of their creation, or one of a composite type's
            attributes; and by ``collation`` its version.
    """

    files: Mapping[int, int]
    columns: Mapping[int, tuple[str, str]]
    types: Mapping[int, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Table:
    """Table or partitioned table of the source database.

    Attributes:
        kind: ``pg_class.relkind``: 'r' or 'p'.
        identity: Names of the replica identity columns in table order; all columns under FULL,
            empty when there is no usable identity.
        primary_key: Names of the primary key columns in table order, or empty.
        ancestors: OIDs of the partitioned tables above, nearest first, root last.
        leaves: OIDs of all leaf partitions under a partitioned table, in no order.
        may_toast: Names of the columns whose values can be TOASTed.
        shape: Properties that no Relation message has; None if not read.
        tree_digest: Digest of the partitions under a partitioned table, and of its place or that of
            a partition in trees around it, that is another one once one of them was detached and
            attached again; empty for other tables.
        by_tree: OIDs of these leaves, or of a partition itself, if no publication of the gateway's
            role names them. PostgreSQL lets their owners make them UNLOGGED, and LOGGED again.
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity
    identity: tuple[str, ...]
    primary_key: tuple[str, ...]
    ancestors: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    may_toast: frozenset[str] = frozenset()
    shape: Shape | None = field(default=None, compare=False, repr=False)
    tree_digest: str = field(default="", compare=False, repr=False)
    by_tree: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """Quoted name, for statements that are shown to people: another role may have chosen it."""
        return one_line(f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}")


@dataclass(frozen=True, slots=True)
class PublishedRelation:
    """Table of a publication, with resolved names.

    `where` is the filter as the server prints it, with every cast explicit; it and `columns` are
    None if the publication has none. `formula` is the filter if it reads other tables. Inheritance
    children of a FOR TABLE without ONLY have entries of their own, partitions do not.
    """

    table_oid: int
    where: str | None
    columns: tuple[str, ...] | None
    clause: TableClause | None
    formula: Formula | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """Publication as the server sees it.

    Attributes:
        generated: Whether stored generated columns are published if there is no column list.
        excepted: OIDs of the tables that FOR ALL TABLES excludes, with their partitions.
    """

    name: str
    operations: frozenset[Operation]
    via_root: bool
    all_tables: bool
    schemas: tuple[str, ...]
    relations: tuple[PublishedRelation, ...]
    generated: bool = False
    excepted: frozenset[int] = frozenset()


class Parent(NamedTuple):
    """Table from which another one inherits, with its qualified name."""

    oid: int
    name: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Catalog of the source database: tables by OID and publications by name.

    Attributes:
        publishes_generated: Whether the server can publish generated columns (18 and later), and
            refuses writes to a table whose replica identity has one that is not published.
        missing: Schema, name and fate of tables that are listed, were once published, and no longer
            exist under this name.
        broken: Errors, by publication and OID, of tables that were published and are therefore not
            in `publications`.
        parents: Tables from which a table inherits that is no partition, by its OID; they need not
            be published. Read only where there are masks.
    """

    tables: Mapping[int, Table]
    publications: Mapping[str, Publication]
    publishes_generated: bool = False
    missing: tuple[tuple[str, str, str], ...] = ()
    broken: Mapping[tuple[str, int], DefinitionError] = field(default_factory=dict)
    parents: Mapping[int, tuple[Parent, ...]] = field(default_factory=dict)
