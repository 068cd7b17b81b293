"""Relation messages in force: the current layout of each relation's tuples.

The server announces a relation before its first change in a session, again after anything about it
may have changed, and once more for each streamed transaction. Only a difference matters.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.pgoutput.messages import Relation

__all__ = ["Relations"]


class Relations:
    """Announcements in force, by relation OID."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Relation] = {}

    def learn(self, relation: Relation) -> bool:
        """Apply an announcement; return whether it differs from the previous one."""
        relation = replace(relation, xid=None)
        if self._known.get(relation.relation_oid) == relation:
            return False
        self._known[relation.relation_oid] = relation
        return True

    def get(self, relation_oid: int) -> Relation | None:
        """Return the announcement in force, or None."""
        return self._known.get(relation_oid)
