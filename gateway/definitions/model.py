"""Publications and subscriptions as values: as written, as in the catalog, and as planned.

`Definitions` is the parsed text, before any look-up. `Catalog` describes the tables in the source
database. `Plan` combines both: how each relation is published to each subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from gateway.core.errors import DefinitionError
from gateway.core.formula import Formula
from gateway.core.identifiers import one_line, quote_identifier
from gateway.core.watermark import HeldCause
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.masks import Mask
from schemas.settings.tables import EnvelopeTable, TopicsTable, TypesTable

Masks: TypeAlias = tuple[tuple[str, Mask], ...]
"""Masks of published columns, by name, in the target's order."""

TableId: TypeAlias = tuple[str, int]
"""Subscription, and OID of the subscriber table."""


class Operation(Enum):
    """Operation in a publication's ``publish`` parameter."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


ALL_OPERATIONS: Final = frozenset(Operation)
IDENTIFYING: Final = (Operation.UPDATE, Operation.DELETE)
"""The operations that need a replica identity, in the order in which PostgreSQL checks them."""


@dataclass(frozen=True, slots=True)
class TableClause:
    """Table of a FOR TABLE list, as written.

    Attributes:
        schema: Schema; None if the name is not qualified (search_path decides, in the source
            database).
        name: Name, unquoted and case folded as PostgreSQL does.
        only: Whether ``ONLY`` was written; without it, descendants by inheritance are included.
        columns: Column list, or None.
        where: Filter expression as SQL text without its outer parentheses, or None.
        position: 0-based character offset of the table in `Definitions.text`.
        where_position: Offset of the filter expression, likewise, or None.
    """

    schema: str | None
    name: str
    only: bool = False
    columns: tuple[str, ...] | None = None
    where: str | None = None
    position: int = 0
    where_position: int | None = None


@dataclass(frozen=True, slots=True)
class PublicationDefinition:
    """CREATE PUBLICATION statement.

    Attributes:
        schemas: Schemas; None stands for ``CURRENT_SCHEMA``.
        generated: Whether ``publish_generated_columns = stored`` (18 and later).
    """

    name: str
    tables: tuple[TableClause, ...] = ()
    schemas: tuple[str | None, ...] = ()
    all_tables: bool = False
    operations: frozenset[Operation] = ALL_OPERATIONS
    via_root: bool = False
    generated: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionDefinition:
    """CREATE SUBSCRIPTION statement: the supported options, with PostgreSQL's defaults.

    Attributes:
        origin: ``any`` or ``none``.
        streaming: ``off``, ``on`` or ``parallel``.
        connection_given: Whether there is a CONNECTION other than ''; it is neither used nor shown.
    """

    name: str
    publications: tuple[str, ...]
    copy_data: bool = True
    origin: str = "any"
    binary: bool = False
    streaming: str = "parallel"
    two_phase: bool = False
    connection_given: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class Definitions:
    """Parsed definitions file.

    Attributes:
        text: Whole source text, for error messages.
        fingerprint: Hex digest that changes whenever the meaning may have changed, but not with
            comments or white space; where there are masks, with a point and a digest of them.
        masks: Masks by ``subscription.schema.table.column``.
    """

    publications: tuple[PublicationDefinition, ...]
    subscriptions: tuple[SubscriptionDefinition, ...]
    text: str
    fingerprint: str
    masks: Mapping[str, Mask] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class FilterClause:
    """Row filter in force, on columns of `table_oid`.

    Attributes:
        text: The server's own rendering; of a filter over other tables, SQL with all its parts in
            that rendering and names of tables qualified.
        formula: The filter if it reads other tables.
    """

    publication: str
    table_oid: int
    text: str
    formula: Formula | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """How one subscription receives the changes of one relation.

    Attributes:
        subscription: Name of the subscription.
        relation_oid: OID of the plain table or leaf partition that changes.
        target_oid: OID of the table it is published as: itself, or an ancestor.
        operations: Published operations.
        filters: Filters for INSERT, UPDATE and DELETE in `operations` and `omitted`, on the columns
            of the target; one of them must be true, and an empty tuple lets every row pass.
        columns: Column list, in the target's order; None for all columns that are not generated,
            including those added later.
        generated: Whether stored generated columns are published if there is no column list.
        masks: Masks of the published columns.
        omitted: Operations that its publications have, and that it cannot have, as it has no
            replica identity. Other leaves of its tree can have them.
    """

    subscription: str
    relation_oid: int
    target_oid: int
    operations: frozenset[Operation]
    filters: Mapping[Operation, tuple[FilterClause, ...]]
    columns: tuple[str, ...] | None
    generated: bool = False
    masks: Masks = ()
    omitted: frozenset[Operation] = frozenset()

    def publishes(self, column: Column) -> bool:
        """Whether `column` of the target is published to the subscription, if it is sent at all.

        Source: logicalrep_should_publish_column in proto.c (18).
        """
        if self.columns is not None:
            return column.name in self.columns
        return not column.generated or (self.generated and column.generated == "s")


@dataclass(frozen=True, slots=True)
class TableCopy:
    """Copy of one subscriber table.

    A row passes if any of `filters` is true, or if there are none. For a partitioned target the
    whole tree is read, for any other only the table itself. `columns` names the copied columns in
    the target's order, `masks` has the masks of some of them. `masked_as` names the tables whose
    masks it has: itself, ancestors, and what these or itself were called before.
    """

    subscription: str
    target_oid: int
    filters: tuple[FilterClause, ...]
    columns: tuple[str, ...]
    masks: Masks = ()
    masked_as: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaskedBefore:
    """Masks of a table when it was published last, which it keeps under other names.

    Attributes:
        subscription: Name of the subscription.
        oid: OID of the table.
        relations: OIDs of the table and of the partitions published as it.
        names: Names of the tables whose masks it had or could have had, the nearest last.
        columns: Names of its masked columns, by ``attnum``.
        known: Names of all of its columns, by ``attnum``; of a held table, of its masked ones.
    """

    subscription: str
    oid: int
    relations: frozenset[int]
    names: tuple[str, ...]
    columns: Mapping[int, str]
    known: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ServerPublication:
    """Publication of the gateway's own that should exist in the source database.

    Attributes:
        name: Name, never quoted.
        table_oids: OIDs of its tables: roots under `via_root`, plain tables and leaves otherwise.
        operations: Published operations, chosen so that no application's write can fail.
        generated: Whether stored generated columns are published (18 and later), because a
            subscription publishes them, or a filter or a replica identity has one.
        filters: Filters, by OID, of tables of which only some rows are needed: one of them is true
            for every row that any subscription receives. No entry if all rows are sent.
        detachable_oids: OIDs of partitions of these tables that stay published when they are
            detached, because a publication has them by themselves: they are members, too, as far as
            the role may add them, so that no change after that is missed.
    """

    name: str
    table_oids: tuple[int, ...]
    operations: frozenset[Operation]
    via_root: bool
    generated: bool = False
    filters: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    detachable_oids: tuple[int, ...] = ()

    @property
    def member_oids(self) -> frozenset[int]:
        """OIDs of its tables and of the detachable partitions."""
        return frozenset((*self.table_oids, *self.detachable_oids))


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault for which a table cannot be published.

    Attributes:
        statement: SQL with which an owner or a superuser can repair it, or empty.
        always: Whether the table is held for it even if the file names the table; otherwise the
            definitions are refused.
        cause: Cause for which an operator has to request the copy.
    """

    reason: str
    statement: str = ""
    always: bool = False
    cause: HeldCause = ""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """Table of a subscription that cannot be published as it is now.

    Attributes:
        statement: As in `Fault`.
        listed: Whether the file names the table; otherwise it is published implicitly.
        cause: As in `Fault`.
        masked_as: As in `TableCopy`.
    """

    subscription: str
    schema: str
    table: str
    oid: int
    reason: str
    statement: str = ""
    listed: bool = True
    cause: HeldCause = ""
    masked_as: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan derived from the definitions and the catalog.

    Attributes:
        tables: All tables named below, with their leaves and ancestors, by OID.
        subscriptions: Subscriptions in the order of their definition.
        publishes: Published relations, in the order of the subscriptions.
        copies: Copies of the tables of subscriptions with `copy_data`.
        server_publications: Publications that the gateway needs on the server.
        warnings: Warnings for the log, such as tables accepted for inserts only.
        missing: As in `Catalog`.
        held: Tables that cannot be published as they are; they occur nowhere else in the plan.
        retired: Subscription and OID of tables with relations that were dropped or are no longer
            published, and whose last rows may still be in the stream.
        earlier: Subscription and OID of relations that are published as before, regardless of the
            current catalog.
        open_ended: Subscription and OID of subscriber tables that the file does not name, but FOR
            ALL TABLES, IN SCHEMA or a publication of the database includes.
        types: Which columns are carried as text.
        envelope: Formats of the subscriptions' values.
        topics: Columns chosen for keys and partitions.
        oids_read_with_changes: OIDs in those of `server_publications` that publish updates or
            deletes.
    """

    tables: Mapping[int, Table]
    subscriptions: tuple[SubscriptionDefinition, ...]
    publishes: tuple[Publish, ...]
    copies: tuple[TableCopy, ...]
    server_publications: tuple[ServerPublication, ...]
    warnings: tuple[str, ...] = ()
    missing: tuple[tuple[str, str, str], ...] = ()
    retired: frozenset[tuple[str, int]] = frozenset()
    earlier: frozenset[tuple[str, int]] = frozenset()
    held: tuple[HeldTable, ...] = ()
    open_ended: frozenset[tuple[str, int]] = frozenset()
    types: TypesTable = field(default_factory=TypesTable)
    envelope: EnvelopeTable = field(default_factory=EnvelopeTable)
    topics: TopicsTable = field(default_factory=TopicsTable)
    oids_read_with_changes: frozenset[int] = field(init=False, repr=False, compare=False)
    _by_target: Mapping[TableId, tuple[Publish, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[TableId, list[Publish]] = {}
        for publish in self.publishes:
            found.setdefault((publish.subscription, publish.target_oid), []).append(publish)
        by_target = {table_id: tuple(publishes) for table_id, publishes in found.items()}
        read = {
            oid
            for publication in self.server_publications
            if not publication.operations.isdisjoint(IDENTIFYING)
            for oid in publication.table_oids
        }
        # The class is frozen; both follow from its fields.
        object.__setattr__(self, "_by_target", by_target)
        object.__setattr__(self, "oids_read_with_changes", frozenset(read))

    def publishes_of(self, subscription: str, target_oid: int) -> tuple[Publish, ...]:
        """Return the relations that are published as a subscriber table."""
        return self._by_target.get((subscription, target_oid), ())

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        """Subscription and OID of all subscriber tables: each has a topic.

        Some are copied without being published: tables published only from a later position of the
        stream, and roots without partitions.
        """
        published = ((publish.subscription, publish.target_oid) for publish in self.publishes)
        copied = ((copy.subscription, copy.target_oid) for copy in self.copies)
        return frozenset((*published, *copied))
