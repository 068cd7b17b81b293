"""Tables that the routes no longer serve, with the reason, until they are copied again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.definitions.model import Plan, TableId

__all__ = ["HeldTables"]


class HeldTables:
    """Tables that became held while they were replicated.

    Attributes:
        reasons: Reasons, by table, for tables that no longer match their copies: the key or values
            changed, or the rows could not be published in their new shape.
        lost: Reasons, by table, for tables that no longer exist and whose last rows cannot be
            published. No copy can bring them, and they concern no other table.
        copied: Tables that have a copy; no others are held here.
    """

    def __init__(self, plan: Plan) -> None:
        self.copied = frozenset((copy.subscription, copy.target_oid) for copy in plan.copies)
        self.reasons: dict[TableId, str] = {}
        self.lost: dict[TableId, str] = {}
        self._unmarked: list[TableId] = []
        self._ending = _ending(plan)

    def adopt(self, plan: Plan, published: Iterable[TableId]) -> None:
        """Hold what `plan` holds of the `published` tables."""
        self._ending = _ending(plan)
        ours = frozenset(published)
        for held in plan.held:
            if (held.subscription, held.oid) in ours:
                self.reasons[held.subscription, held.oid] = held.reason

    def hold(self, reasons: Mapping[TableId, str]) -> None:
        """Hold those of some tables that have a copy and are not held yet; markers become due."""
        found = (reasons.keys() & self.copied) - self.reasons.keys()
        self.reasons |= {table_id: reasons[table_id] for table_id in found}
        self._unmarked += sorted(found)

    def mark(self, tables: Iterable[TableId]) -> None:
        """Make markers due for tables that are refused elsewhere, if they are not held here."""
        self._unmarked += sorted(self.copied.intersection(tables) - self.reasons.keys())

    def is_ending(self, table_id: TableId) -> bool:
        """Whether a table is published until some position, and not copied."""
        return table_id in self._ending

    def pop_unmarked(self) -> list[TableId]:
        """Return the tables that became held since the last call."""
        unmarked, self._unmarked = self._unmarked, []
        return unmarked


def _ending(plan: Plan) -> frozenset[TableId]:
    return plan.retired.difference((copy.subscription, copy.target_oid) for copy in plan.copies)
