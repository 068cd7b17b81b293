"""In which form a relation's rows are published: target, columns, identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gateway.definitions.model import Column, Table
from gateway.envelope.schema import KeyColumns, key_of
from gateway.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from gateway.routing.ports import CatalogReader
from gateway.routing.state import CollectionOrder

__all__ = ["Form", "agrees", "announced_columns"]

_TEXT: Final = 25


@dataclass(frozen=True, slots=True)
class Form:
    """One form in which a relation is published.

    Attributes:
        columns: The published ones, in the target's order.
        identity: Names of the replica identity's columns.
    """

    target: Table
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity
    identity: tuple[str, ...]
    order: CollectionOrder

    @property
    def key(self) -> KeyColumns:
        """The record key under the identity that the relation was announced with."""
        as_announced = replace(
            self.target, replica_identity=self.replica_identity, identity=self.identity
        )
        return key_of(as_announced, {column.name for column in self.columns})


def agrees(table: Table, relation: Relation) -> bool:
    """Whether the announced columns are those of the catalog, in type and order."""
    sent = [(c.name, c.type_oid, c.type_modifier) for c in relation.columns]
    names = {c.name for c in relation.columns}
    known = [(c.name, c.type_oid, c.type_modifier) for c in table.columns if c.name in names]
    unsent = [c for c in table.columns if c.name not in names]
    return (
        sent == known
        and not any(c.generated == "" for c in unsent)
        and table.replica_identity is relation.replica_identity
    )


def announced_columns(
    target: Table, relation: Relation, catalog: CatalogReader, types: Mapping[int, str]
) -> tuple[Column, ...]:
    """Describe the columns of `relation`, which is published as itself: as `target` has them.

    A column that `target` does not have is described by its type alone; one whose type is gone is
    text, under the name of the type that is in `types`.
    """
    known = {column.name: column for column in target.columns}
    columns = tuple(
        known.get(c.name)
        or catalog.column(c.name, c.type_oid, c.type_modifier)
        or _as_text(c, types.get(c.type_oid, "text"))
        for c in relation.columns
    )
    if agrees(target, relation):
        return columns
    # The catalog is of another time: its columns may only bear the same names.
    return tuple(replace(column, attnum=0, missing=None, computed=False) for column in columns)


def _as_text(column: RelationColumn, type_name: str) -> Column:
    return Column(
        column.name, 0, _TEXT, -1, type_name, _TEXT, -1, "b", False, "", None
    )  # fmt: skip
