"""States of the copies of a plan's tables, as committed with every watermark."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from gateway.copy import Progress
from gateway.core.watermark import CopyState
from gateway.definitions.changes import key_of_copy
from gateway.definitions.model import Plan, TableCopy
from gateway.definitions.tables.remembered import describe
from gateway.observe import event
from gateway.routing.build.topics import Addresses

__all__ = ["CopyStates"]

_LOG: Final = logging.getLogger(__name__)
_REFUSED: Final = (
    "a table is held: the registry refuses its schema; its changes are in the error topic, and it "
    "is copied at a start when the schema is accepted"
)


class CopyStates:
    """The states of all tables of a plan, one for each subscription that copies it.

    Args:
        plan: The plan in force.
        states: States as committed with the watermark.
        addresses: Addresses, which know the tables whose schema is refused.
    """

    def __init__(self, plan: Plan, states: tuple[CopyState, ...], addresses: Addresses) -> None:
        self._plan = plan
        self._states = {(s.subscription, s.schema, s.table): s for s in states}
        self._addresses = addresses
        self._changed = False
        self._last = states

    def of(self, copy: TableCopy) -> CopyState:
        """Return the state of one table for one subscription."""
        return self._states[key_of_copy(self._plan, copy)]

    def set(self, copy: TableCopy, **changes: object) -> CopyState:
        """Change the state of a table; return it."""
        key = key_of_copy(self._plan, copy)
        before = self._states[key]
        self._states[key] = after = replace(before, **changes)  # type: ignore[arg-type]
        self._changed |= after != before
        return after

    def all(self) -> tuple[CopyState, ...]:
        """Return all of them; the same object from call to call, and at first, while none changes.

        A table whose schema is refused is pending, whatever was set: it is copied from its
        beginning when the registry accepts the schema.
        """
        for copy in self._plan.copies if self._addresses.refused else ():
            if self.is_schema_refused(copy):
                self.start_over(copy, _REFUSED)
        if self._changed:
            self._changed = False
            self._last = tuple(self._states.values())
        return self._last

    def is_schema_refused(self, copy: TableCopy) -> bool:
        """Whether the registry refuses the schema of the table for this subscription."""
        return (copy.subscription, copy.target_oid) in self._addresses.refused

    def apply(self, new_plan: Plan) -> None:
        """Remember how the tables are published from here on, as DDL messages report."""
        tables = {**new_plan.tables, **self._plan.tables}
        plan = replace(self._plan, publishes=new_plan.publishes, tables=tables)
        for copy in plan.copies:
            if before := self.of(copy).taken:
                self.set(copy, taken=describe(plan, copy, before))

    def lose(self, subscription: str, oid: int, because: str) -> None:
        """Remember why the last rows of a table that is not there any more are not published."""
        reason = f"its last rows could not be published: {because}"
        for key, state in self._states.items():
            if (state.subscription, state.oid) == (subscription, oid) and state.reason != reason:
                self._states[key] = replace(state, reason=reason)
                self._changed = True
                event(
                    _LOG,
                    logging.WARNING,
                    "the last rows of a table that is not there any more cannot be published",
                    subscription=subscription,
                    relation=f"{state.schema}.{state.table}",
                    because=because,
                )

    def start_over(self, copy: TableCopy, message: str, **fields: object) -> bool:
        """Let a table be copied from its beginning, and log that.

        Args:
            copy: The table, for one subscription.
            message: Constant text of the log line.
            fields: Further fields of the log line.

        Returns:
            Whether that is new; otherwise nothing is logged.
        """
        before = self.of(copy)
        after = self.set(
            copy,
            state="pending",
            consistent_point=before.consistent_point if before.state == "pending" else None,
            progress=Progress(),
            asked=None,
            published=0,
        )
        if after == before:
            return False
        event(
            _LOG,
            logging.WARNING,
            message,
            subscription=copy.subscription,
            relation=self._plan.tables[copy.target_oid],
            **fields,
        )
        return True
