"""Projections of a relation: target table, published columns and replica identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.core.errors import SchemaError
from gateway.definitions.model import Column, Plan, Publish, Table
from gateway.definitions.tables.keys import KeyColumns, key_of
from gateway.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity, Type
from gateway.routing.ports import CatalogReader
from gateway.routing.row.transaction_state import CollectionOrder

__all__ = ["Projection", "Projections"]

_TEXT: Final = 25


@dataclass(frozen=True, slots=True)
class Projection:
    """One projection of a relation: the table, columns and identity under which it is published.

    Attributes:
        columns: Published columns, in the target's order.
        identity: Names of the replica identity's columns.
    """

    target: Table
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity
    identity: tuple[str, ...]
    order: CollectionOrder

    @property
    def key(self) -> KeyColumns:
        """Columns of the record key under the announced replica identity."""
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


def _announced_columns(
    target: Table, relation: Relation, catalog: CatalogReader, types: Mapping[int, str]
) -> tuple[Column, ...]:
    """Describe the columns of `relation`, which is published as itself, by those of `target`.

    A column that `target` lacks is described by its type alone; one whose type no longer exists is
    text, under the type name found in `types`.
    """
    known = {column.name: column for column in target.columns}
    columns = tuple(
        known.get(c.name)
        or catalog.column(c.name, c.type_oid, c.type_modifier)
        or _as_text(c, types.get(c.type_oid, "text"))
        for c in relation.columns
    )
    if _agrees(target, relation):
        return columns
    # The catalog is from another point in time: its columns may merely have the same names.
    return tuple(replace(column, attnum=0, missing=None, computed=False) for column in columns)


def _as_text(column: RelationColumn, type_name: str) -> Column:
    return Column(
        column.name, 0, _TEXT, -1, type_name, _TEXT, -1, "b", False, "", None
    )  # fmt: skip


class Projections:
    """Tables of a plan as currently known, and their projections.

    A table keeps the name that it had in the plan: its topic is named after it.

    Attributes:
        tables: Tables, by OID.
    """

    def __init__(self, plan: Plan, catalog: CatalogReader) -> None:
        self.tables = dict(plan.tables)
        self._catalog = catalog
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
        """Return the projection of the relation's rows under `publish`."""
        direct = publish.target_oid == relation.relation_oid
        target = self._current(publish.target_oid, relation if direct else None)
        if direct:
            columns = _announced_columns(target, relation, self._catalog, self._types)
            replica_identity = relation.replica_identity
            identity = tuple(c.name for c in relation.columns if c.is_key)
        else:
            sent = {column.name for column in relation.columns}
            columns = tuple(column for column in target.columns if column.name in sent)
            replica_identity, identity = target.replica_identity, target.identity
        columns = tuple(column for column in columns if publish.publishes(column))
        if publish.columns is not None and len(columns) < len(publish.columns):
            missing = sorted(set(publish.columns) - {c.name for c in columns})
            raise SchemaError(
                f"{target}: column {missing[0]!r} of the column list is gone",
                hint="change the publication's column list",
            )
        return Projection(target, columns, replica_identity, identity, self._order(target.oid))

    def _current(self, oid: int, relation: Relation | None) -> Table:
        """Return the table's description, read again when `relation` has another shape."""
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

    def stored(self, table: Table, columns: Sequence[str]) -> Projection:
        """Return the projection of rows read from the table itself."""
        by_name = {column.name: column for column in table.columns}
        return Projection(
            table,
            tuple(by_name[name] for name in columns),
            table.replica_identity,
            table.identity,
            self._order(table.oid),
        )

    def changes(self, oid: int) -> int:
        """Return how many row changes of a table have been examined."""
        order = self._orders.get(oid)
        return 0 if order is None else order.rows

    def _order(self, oid: int) -> CollectionOrder:
        return self._orders.setdefault(oid, CollectionOrder())
