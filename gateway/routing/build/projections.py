"""Projections of a relation: target table, published columns and replica identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.core.errors import SchemaError
from gateway.definitions.model import Column, Masks, Plan, Publish, Table
from gateway.definitions.tables.keys import KeyColumns, chosen_fault, key_of
from gateway.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity, Type
from gateway.routing.ports import CatalogReader
from gateway.routing.row.transaction_state import CollectionOrder
from schemas.settings.tables import TYPE_CHOICES, ChosenColumns
from schemas.types import of_column, precision_and_scale

__all__ = ["Projection", "Projections"]

_CHOSEN: Final = ChosenColumns()
_TEXT: Final = 25
_WIDTHS: Final = {21: (0, 2), 23: (0, 4), 20: (0, 8), 700: (1, 4), 701: (1, 8)}
"""Kind and size in bytes of int2, int4, int8 (0) and float4, float8 (1), by OID."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Table, columns and identity under which a relation is published.

    Attributes:
        columns: Published columns, in the target's order.
        identity: Names of the replica identity's columns.
        masks: Masks of some of the columns.
        chosen: Columns chosen for the record key and the partition.
    """

    target: Table
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity
    identity: tuple[str, ...]
    order: CollectionOrder
    masks: Masks = ()
    chosen: ChosenColumns = _CHOSEN

    @property
    def key(self) -> KeyColumns:
        """Columns that identify a row under the announced replica identity."""
        as_announced = replace(
            self.target, replica_identity=self.replica_identity, identity=self.identity
        )
        return key_of(as_announced, {column.name for column in self.columns})


def _agrees(table: Table, relation: Relation) -> bool:
    """Whether the announced columns match those of the catalog in type and order."""
    sent = [(c.name, c.type_oid, c.type_modifier) for c in relation.columns]
    names = {c.name for c in relation.columns}
    known = [(c.name, c.type_oid, c.type_modifier) for c in table.columns if c.name in names]
    unsent = [c for c in table.columns if c.name not in names]
    return (
        sent == known
        and not any(c.generated == "" for c in unsent)
        and table.replica_identity is relation.replica_identity
    )


def _is_wider(column: Column, other: Column) -> bool:
    """Whether the type of `column` has all values of the type of `other`, and more."""
    wide, narrow = (_WIDTHS.get(c.base_type_oid, (-1, 0)) for c in (column, other))
    return wide[0] == narrow[0] and wide > narrow


def _reads(column: Column, sent: Column) -> bool:
    """Whether the texts of all values of the type of `sent` are read under the type of `column`."""
    if column.element is not None:
        return sent.element == column.element
    kind, other = (
        of_column(c.base_type_oid, c.base_name, native=TYPE_CHOICES, modifier=c.base_type_modifier)
        for c in (column, sent)
    )
    if kind.conversion == "text" and not kind.logical and not kind.debezium:
        return True
    if other.conversion == "integer" and kind.conversion in ("float4", "float8"):
        return True
    if kind is not other or column.base_type_oid != sent.base_type_oid:
        return False
    if not kind.decimal:
        return True
    (precision, scale), (sent_precision, sent_scale) = (
        precision_and_scale(c.base_type_modifier) or (0, 0) for c in (column, sent)
    )
    return sent_scale <= scale and sent_precision - sent_scale <= precision - scale


def _as_text(column: RelationColumn, type_name: str) -> Column:
    # Not of kind "b": a base type is known by its name, and anybody could have chosen that of a
    # type that is gone.
    return Column(
        column.name, 0, _TEXT, -1, type_name, _TEXT, -1, "p", False, "", None
    )  # fmt: skip


class Projections:
    """Tables of a plan as currently known, and their projections.

    A table keeps the name that it had in the plan, because its topic is named after it.

    Attributes:
        tables: Tables, by OID.
    """

    def __init__(self, plan: Plan, catalog: CatalogReader) -> None:
        self.tables = dict(plan.tables)
        self._catalog = catalog
        self._topics = plan.topics
        self._names = {table.oid: (table.schema, table.name) for table in plan.tables.values()}
        self._types: dict[int, str] = {}
        self._orders: dict[int, CollectionOrder] = {}

    def adopt(self, plan: Plan) -> None:
        """Use the tables of `plan` from now on."""
        self.tables |= {oid: self._under_name(table) for oid, table in plan.tables.items()}

    def name_type(self, announced: Type) -> None:
        """Apply a Type message: the name of a type that may no longer be in the catalog."""
        self._types[announced.type_oid] = f"{announced.namespace}.{announced.name}"

    def of_relation(self, publish: Publish, relation: Relation) -> Projection:
        """Return the projection of the relation's rows under `publish`.

        Raises:
            SchemaError: they cannot be published with its columns and masks.
        """
        direct = publish.target_oid == relation.relation_oid
        target = self._current(publish.target_oid, relation if direct else None)
        if direct:
            columns = self._announced_columns(target, relation)
            replica_identity = relation.replica_identity
            identity = tuple(c.name for c in relation.columns if c.is_key)
        else:
            sent = {column.name: column for column in relation.columns}
            columns = tuple(
                self._fitting(target, column, sent[column.name])
                for column in target.columns
                if column.name in sent
            )
            replica_identity, identity = target.replica_identity, target.identity
        columns = tuple(column for column in columns if publish.publishes(column))
        if publish.columns is not None and len(columns) < len(publish.columns):
            missing = sorted(set(publish.columns) - {c.name for c in columns})
            raise SchemaError(
                f"{target}: column {missing[0]!r} of the column list is gone",
                hint="change the publication's column list",
            )
        if gone := {name for name, _ in publish.masks}.difference(c.name for c in columns):
            raise SchemaError(
                f"{target}: the masked column {min(gone)!r} is gone",
                hint="if it was renamed, rename it in [columns] masks as well",
            )
        chosen, order = self._topics.chosen(str(target)), self._order(target.oid)
        found = Projection(
            target, columns, replica_identity, identity, order, publish.masks, chosen
        )
        # The identities of partitions published as their root are not announced: the plan's count.
        operations = publish.operations if publish.relation_oid == relation.relation_oid else ()
        names = {column.name for column in columns}
        if (
            fault := chosen_fault(chosen, names, operations, replica_identity, identity)
        ) is not None:
            raise SchemaError(f"{target}: {fault.reason}")
        for name, mask in publish.masks:
            if mask.kind != "hash" and name in (found.key or ()):
                raise SchemaError(
                    f"{target}: column {name!r} is part of the key now, and its mask is {mask}",
                    hint="mask it by hash: by others, rows with different keys would become one",
                )
        return found

    def differs_in_type(self, publish: Publish, relation: Relation) -> bool:
        """Whether `relation` has a column of another type than the table of `publish` has now."""
        known = {column.name: column for column in self.tables[publish.target_oid].columns}
        return any(
            (c.type_oid, c.type_modifier) != (known[c.name].type_oid, known[c.name].type_modifier)
            for c in relation.columns
            if c.name in known
        )

    def _announced_columns(self, target: Table, relation: Relation) -> tuple[Column, ...]:
        """Describe the columns of `relation`, which is published as itself, as `target` has them.

        A column that `target` lacks is described by its type alone.
        """
        known = {column.name: column for column in target.columns}
        columns = tuple(
            self._fitting(target, known[c.name], c) if c.name in known else self._of_type(c)
            for c in relation.columns
        )
        if _agrees(target, relation):
            return columns
        # The catalog is as of another time: its columns may be others of the same names.
        return tuple(replace(column, attnum=0, missing=None, computed=False) for column in columns)

    def _fitting(self, target: Table, column: Column, sent: RelationColumn) -> Column:
        """Return `column` with a type that fits the rows: the catalog's or the announced one.

        The catalog's type is the one that all rows will have in the end. The announced type is used
        if it is wider, or if its values do not read under the catalog's type: that of rows before
        ALTER COLUMN TYPE. It is also used if the table no longer exists and the announced type is
        not narrower: the description of such a table may be out of date.
        """
        if (column.type_oid, column.type_modifier) == (sent.type_oid, sent.type_modifier):
            return column
        announced = self._of_type(sent)
        if _is_wider(announced, column):
            return announced
        if _is_wider(column, announced):
            return column
        exists = self._catalog.table(target.oid) is not None
        return column if exists and _reads(column, announced) else announced

    def _of_type(self, sent: RelationColumn) -> Column:
        """Describe a column by its type; if the type is gone, as text under that type's name."""
        found = self._catalog.column(sent.name, sent.type_oid, sent.type_modifier)
        return found or _as_text(sent, self._types.get(sent.type_oid, "text"))

    def _current(self, oid: int, relation: Relation | None) -> Table:
        """Return the table's description, read again if `relation` does not agree with it."""
        table = self.tables[oid]
        if relation is None or _agrees(table, relation):
            return table
        fresh = self._catalog.table(oid)
        if fresh is not None:
            self.tables[oid] = table = self._under_name(fresh)
        return table

    def _under_name(self, table: Table) -> Table:
        schema, name = self._names.setdefault(table.oid, (table.schema, table.name))
        return replace(table, schema=schema, name=name)

    def stored(self, table: Table, columns: Sequence[str], masks: Masks) -> Projection:
        """Return the projection of rows read from the table itself."""
        by_name = {column.name: column for column in table.columns}
        return Projection(
            table,
            tuple(by_name[name] for name in columns),
            table.replica_identity,
            table.identity,
            self._order(table.oid),
            masks,
            self._topics.chosen(str(table)),
        )

    def changes(self, oid: int) -> int:
        """Return the number of row changes of a table that have been examined."""
        order = self._orders.get(oid)
        return 0 if order is None else order.rows

    def _order(self, oid: int) -> CollectionOrder:
        return self._orders.setdefault(oid, CollectionOrder())
