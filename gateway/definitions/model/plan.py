"""The plan: how each relation is published to each subscription, and what is copied or held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.errors import HeldCause
from gateway.core.formula import Formula
from gateway.definitions.model.catalog import Column, Table
from gateway.definitions.model.statements import (
    IDENTIFYING,
    Operation,
    SubscriptionDefinition,
)
from schemas.settings.masks import Mask
from schemas.settings.tables import EnvelopeTable, TopicsTable, TypesTable

__all__ = [
    "Fault",
    "FilterClause",
    "HeldTable",
    "MaskedBefore",
    "Masks",
    "Plan",
    "Publish",
    "ServerPublication",
    "TableCopy",
    "TableId",
]

Masks: TypeAlias = tuple[tuple[str, Mask], ...]
"""Masks of published columns, by name, in the target's order."""

TableId: TypeAlias = tuple[str, int]
"""Subscription, and OID of the subscriber table."""


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
        statements: SQL with which an owner or a superuser can repair it, in order.
        by_hand: SQL that is needed as well, and gives the role more than this table: nothing runs
            it unless somebody has decided so.
        always: Whether the table is held for it even if the file names the table; otherwise the
            definitions are refused.
        cause: Code of the reason.
    """

    reason: str
    statements: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    always: bool = False
    cause: HeldCause = ""

    @property
    def sql(self) -> str:
        """All statements, in one line."""
        return "; ".join((*self.statements, *self.by_hand))

    @property
    def explained(self) -> str:
        """The reason, and the statements in brackets."""
        return f"{self.reason} ({self.sql})" if self.sql else self.reason


@dataclass(frozen=True, slots=True)
class HeldTable:
    """Table of a subscription that cannot be published as it is now.

    Attributes:
        statements: As in `Fault`.
        by_hand: As in `Fault`.
        listed: Whether the file names the table; otherwise it is published implicitly.
        cause: As in `Fault`.
        masked_as: As in `TableCopy`.
    """

    subscription: str
    schema: str
    table: str
    oid: int
    reason: str
    statements: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
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
        masked_columns: OID and name of the columns that a subscription masks, of tables that have
            filters over other tables, and of the tables in those.
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
    masked_columns: frozenset[tuple[int, str]] = frozenset()
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
