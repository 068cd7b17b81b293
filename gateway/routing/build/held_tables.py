"""Tables that the routes no longer serve, with reasons, until they are copied again."""

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
            published; no copy can bring these rows.
        copied: Tables that have a copy; only these are held here.
    """

    def __init__(self, plan: Plan) -> None:
        self.copied = frozenset((copy.subscription, copy.target_oid) for copy in plan.copies)
        self.reasons: dict[TableId, str] = {}
        self.lost: dict[TableId, str] = {}
        self._unmarked: list[TableId] = []
        self._ending = _ending(plan)

    def adopt(self, plan: Plan, published: Iterable[TableId]) -> None:
        """Hold those of the `published` tables that `plan` holds."""
        self._ending = _ending(plan)
        ours = frozenset(published)
        for held in plan.held:
            if (held.subscription, held.oid) in ours:
                self.reasons[held.subscription, held.oid] = held.reason

    def hold(self, reasons: Mapping[TableId, str]) -> None:
        """Hold the tables of `reasons` that have a copy and are not held; markers become due."""
        added = (reasons.keys() & self.copied) - self.reasons.keys()
        self.reasons |= {table_id: reasons[table_id] for table_id in added}
        self._unmarked += sorted(added)

    def withdraw(self, table_id: TableId, reason: str) -> bool:
        """Give up rows of a table: it is held, or they were its last ones and are lost.

        Returns:
            Whether it is either. A table that has no copy and still exists is neither.
        """
        if table_id in self._ending:
            self.lost[table_id] = reason
            return True
        self.hold({table_id: reason})
        return table_id in self.copied

    def mark(self, tables: Iterable[TableId]) -> None:
        """Make markers due for tables that are held elsewhere and not here."""
        self._unmarked += sorted(self.copied.intersection(tables) - self.reasons.keys())

    def is_ending(self, table_id: TableId) -> bool:
        """Whether a table is retired: published until its last rows have passed, and not copied."""
        return table_id in self._ending

    def pop_unmarked(self) -> list[TableId]:
        """Return the tables that became held since the last call."""
        unmarked, self._unmarked = self._unmarked, []
        return unmarked


def _ending(plan: Plan) -> frozenset[TableId]:
    return plan.retired.difference((copy.subscription, copy.target_oid) for copy in plan.copies)
