"""In which form a relation's rows are published: target, columns, identity."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.definitions.model import Column, Table
from gateway.envelope.schema import KeyColumns, key_of
from gateway.pgoutput.messages import Relation, ReplicaIdentity
from gateway.routing.state import CollectionOrder

__all__ = ["Form", "agrees"]


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
