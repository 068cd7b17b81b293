"""Publications and subscriptions as values: first as written, then as they meet the tables.

`Definitions` is what the parser reads from the text; nothing in it has been looked up.
`Catalog` is what the source database says of the tables. `Plan` is the meeting of both:
for each subscription and each relation whose changes can arrive, how it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.core.errors import DefinitionError
from gateway.core.identifiers import one_line, quote_identifier
from gateway.core.records import HeldCause
from gateway.definitions.tables.shape import Shape
from gateway.pgoutput.messages import ReplicaIdentity


class Operation(Enum):
    """What a publication's ``publish`` parameter can name."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


ALL_OPERATIONS: Final = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class TableClause:
    """One table of a FOR TABLE list, as written.

    Attributes:
        schema: None when the name is not qualified (search_path decides, in the source database).
        name: Unquoted, case folded as PostgreSQL does.
        only: ``ONLY`` was written; without it, descendants by inheritance are included.
        columns: The column list, or None.
        where: The filter expression as SQL text without its outer brackets, or None.
        position: 0-based character offset of the table in `Definitions.text`.
        where_position: The same for the filter expression, or None.
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
    """A CREATE PUBLICATION statement.

    Attributes:
        schemas: ``CURRENT_SCHEMA`` is None.
        generated: ``publish_generated_columns = stored`` (18 and later).
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
    """A CREATE SUBSCRIPTION statement; the options that are honoured, with PostgreSQL's defaults.

    Attributes:
        origin: ``any`` or ``none``.
        streaming: ``off``, ``on`` or ``parallel``.
        connection_given: A CONNECTION other than '' was written; it is not used and never shown.
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
    """The parsed definitions file.

    Attributes:
        text: The whole source, for error messages.
        fingerprint: Hex digest that changes when the meaning may have changed
            (not with comments or white space).
    """

    publications: tuple[PublicationDefinition, ...]
    subscriptions: tuple[SubscriptionDefinition, ...]
    text: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Collation:
    """What a text column's collation allows us to reproduce.

    Attributes:
        name: Qualified as PostgreSQL prints it, or ``default``.
        deterministic: Equal means equal bytes.
        c_order: Sorts by the bytes of the UTF-8 text (``C``, ``POSIX``, builtin ``C.UTF-8``, ...).
    """

    name: str
    deterministic: bool
    c_order: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table in the source database, dropped ones left out.

    Attributes:
        type_name: ``format_type(atttypid, atttypmod)``, for messages and schemas.
        base_type_oid: The type under any domains; equals `type_oid` for other types.
        type_kind: ``pg_type.typtype`` of `type_oid`: b, c, d, e, p, r or m.
        generated: ``attgenerated``: '' , 's' (stored) or 'v' (virtual).
        missing: What rows that were there before the column have in it, as PostgreSQL prints it;
            None is NULL. Source: ``attmissingval``.
        computed: Rows that were there before the column may have values of their own in it: it
            has a default that is not the same for all, an identity, or is generated.
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


@dataclass(frozen=True, slots=True)
class Table:
    """A table or partitioned table of the source database.

    Attributes:
        kind: ``pg_class.relkind``: 'r' or 'p'.
        identity: Names of the replica identity columns in table order; all columns under FULL,
            empty when there is no usable identity.
        primary_key: Names of the primary key columns in table order, or empty.
        ancestors: OIDs of the partitioned tables above, nearest first, root last.
        leaves: OIDs of all leaf partitions under a partitioned table, in no order.
        may_toast: Names of the columns whose values can be TOASTed.
        shape: What no Relation message says of it; None: it was not read.
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
        """Its name for a statement that somebody is to run: another role may have chosen it."""
        return one_line(f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}")


@dataclass(frozen=True, slots=True)
class PublishedRelation:
    """A table of a publication after its names were looked up.

    `where` is the filter as the server itself prints it back (every cast explicit); it and
    `columns` are None where the publication has none. One per table: inheritance children of a
    FOR TABLE without ONLY have entries of their own, partitions do not.
    """

    table_oid: int
    where: str | None
    columns: tuple[str, ...] | None
    clause: TableClause | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as the server sees it.

    Attributes:
        generated: Without a column list, stored generated columns are published as well.
        excepted: OIDs of the tables that FOR ALL TABLES leaves out, with their partitions.
    """

    name: str
    operations: frozenset[Operation]
    via_root: bool
    all_tables: bool
    schemas: tuple[str, ...]
    relations: tuple[PublishedRelation, ...]
    generated: bool = False
    excepted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Catalog:
    """What the source database says: its tables, by OID, and the publications, by name.

    Attributes:
        publishes_generated: The server can publish generated columns (18 and later), and refuses
            writes to a table whose replica identity has one that is not published.
        missing: Schema and name of tables that are listed, were published once, and are no longer
            there under this name; and what has become of them.
        broken: By publication and OID, why a table that was published is not in `publications`.
    """

    tables: Mapping[int, Table]
    publications: Mapping[str, Publication]
    publishes_generated: bool = False
    missing: tuple[tuple[str, str, str], ...] = ()
    broken: Mapping[tuple[str, int], DefinitionError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterClause:
    """A row filter in force; `text` is the server's own rendering, on columns of `table_oid`."""

    publication: str
    table_oid: int
    text: str


@dataclass(frozen=True, slots=True)
class Publish:
    """How one subscription takes the changes of one relation.

    Attributes:
        subscription: Its name.
        relation_oid: A plain table or leaf partition: where the change happens.
        target_oid: The table it is published as: itself, or an ancestor.
        operations: What is published at all.
        filters: For INSERT, UPDATE and DELETE in `operations`: the filters of which one must be
            true, on the columns of the target; an empty tuple lets every row pass.
        columns: The column list, in the target's order; None publishes all columns, also those
            that are added later, but for generated ones.
        generated: Without a column list, stored generated columns are published as well.
    """

    subscription: str
    relation_oid: int
    target_oid: int
    operations: frozenset[Operation]
    filters: Mapping[Operation, tuple[FilterClause, ...]]
    columns: tuple[str, ...] | None
    generated: bool = False

    def publishes(self, column: Column) -> bool:
        """Whether the subscription gets `column` of the target, as far as it is sent at all.

        Source: logicalrep_should_publish_column in proto.c (18).
        """
        if self.columns is not None:
            return column.name in self.columns
        return not column.generated or (self.generated and column.generated == "s")


@dataclass(frozen=True, slots=True)
class TableCopy:
    """The initial copy of one subscriber table.

    Rows pass when any of `filters` is true, all of them when it is empty. For a partitioned
    target the whole tree is read, for any other only the table itself. `columns` names every
    column that is copied, in the target's order.
    """

    subscription: str
    target_oid: int
    filters: tuple[FilterClause, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerPublication:
    """A publication of the gateway's own that should exist in the source database.

    Attributes:
        name: Quoted nowhere.
        table_oids: Its tables: roots under `via_root`, plain tables and leaves otherwise.
        operations: What it publishes, so that no application's write can fail.
        generated: Stored generated columns are published as well (18 and later), because somebody
            takes them, or a filter or a replica identity has one.
        filters: By OID, of tables of which only some rows are wanted: the filters of which one is
            true for every row that anybody takes. Nothing where all rows are sent.
    """

    name: str
    table_oids: tuple[int, ...]
    operations: frozenset[Operation]
    via_root: bool
    generated: bool = False
    filters: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a table cannot be published.

    Attributes:
        statement: SQL with which an owner or a superuser mends it; empty where none does.
        always: Also a table that the file names is held for it, and no definitions are refused.
        cause: Whether a person has to ask for its copy.
    """

    reason: str
    statement: str = ""
    always: bool = False
    cause: HeldCause = ""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table of a subscription that cannot be published as it is now.

    Attributes:
        statement: As of the `Fault`.
        listed: Whether the file names it; otherwise it has come in by itself.
        cause: As of the `Fault`.
    """

    subscription: str
    schema: str
    table: str
    oid: int
    reason: str
    statement: str = ""
    listed: bool = True
    cause: HeldCause = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that follows from the definitions and the catalog.

    Attributes:
        tables: Every table named below, and the leaves and ancestors of those, by OID.
        subscriptions: In the order of their definition.
        publishes: In the order of the subscriptions.
        copies: What the initial copy has to do, for subscriptions with `copy_data`.
        server_publications: What the gateway needs on the server.
        warnings: Lines for the log: tables accepted for insert only, and the like.
        missing: As in `Catalog`.
        held: Those that cannot be published as they are; nothing else here has them.
        retired: Subscription and OID of the tables of which relations were dropped that are
            published for as long as the stream has rows of them.
        earlier: Subscription and OID of the relations that are published as they were, whatever
            the catalog says of now.
        open_ended: Subscription and OID of the subscriber tables that the file does not name: FOR
            ALL TABLES, IN SCHEMA or a publication of the database has them.
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

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        """Subscription and OID of all subscriber tables: each has a topic.

        Some are copied and not published: now, but from a place in the stream on; or ever, as a
        root that has no partition any more.
        """
        published = ((publish.subscription, publish.target_oid) for publish in self.publishes)
        copied = ((copy.subscription, copy.target_oid) for copy in self.copies)
        return frozenset((*published, *copied))
