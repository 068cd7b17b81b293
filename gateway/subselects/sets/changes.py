"""Changes of a set by one transaction: what came in, and which values began or ceased to be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.subselects.formula import Members, SetTestKind, Value

__all__ = ["Before", "SetChange", "SetDelta", "affected_values"]


class SetDelta:
    """Changes of one inner table by one transaction, in order, as entries of one set.

    Attributes:
        counts: By how much the number of each entry changes.
        is_truncated: Whether everything from before the transaction is gone.
    """

    __slots__ = ("counts", "is_truncated")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.is_truncated = False

    def change(self, old: bytes | None, new: bytes | None) -> None:
        """Note the entries of a row before and after a change; None for no row or no entry."""
        if old == new:
            return
        for entry, by in ((old, -1), (new, 1)):
            if entry is not None:
                count = self.counts.get(entry, 0) + by
                if count:
                    self.counts[entry] = count
                else:
                    del self.counts[entry]

    def truncate(self) -> None:
        """Note a TRUNCATE."""
        self.counts.clear()
        self.is_truncated = True

    def add(self, later: SetDelta) -> None:
        """Add the changes of a later transaction."""
        if later.is_truncated:
            self.truncate()
        for entry, by in later.counts.items():
            count = self.counts.get(entry, 0) + by
            if count:
                self.counts[entry] = count
            else:
                del self.counts[entry]


@dataclass(frozen=True, slots=True)
class SetChange:
    """Result of a transaction for one set.

    Attributes:
        toggled: Values that began to be in (true) or ceased to be (false).
        was_empty: Whether the sub-select had no row before.
        is_empty: Whether it has none now.
        had_null: Whether NULL was a member of a set with one column.
        has_null: Whether it is.
        is_whole: Whether any value may have changed, and `toggled` does not say which.
    """

    toggled: Mapping[Value, bool]
    was_empty: bool
    is_empty: bool
    had_null: bool = False
    has_null: bool = False
    is_whole: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether no test can have another result."""
        return not (self.toggled or self.is_whole or self.was_empty != self.is_empty)


class Before:
    """A set as it was before a change that is not whole."""

    __slots__ = ("_change", "_members")

    def __init__(self, members: Members, change: SetChange) -> None:
        self._members = members
        self._change = change

    def __contains__(self, value: Value) -> bool:
        is_member = self._change.toggled.get(value)
        return value in self._members if is_member is None else not is_member

    @property
    def is_empty(self) -> bool:
        """Whether the sub-select had no row."""
        return self._change.was_empty


def affected_values(kind: SetTestKind, change: SetChange) -> frozenset[Value] | None:
    """Return the tested values for which a test may have another result; None for any."""
    if change.is_whole:
        return None
    values = frozenset(value for value in change.toggled if None not in value)
    if kind is not SetTestKind.NOT_IN:
        return values
    if change.had_null != change.has_null:
        return None
    if change.had_null:
        return frozenset()  # it is true of nothing, before and after
    return values | {(None,)} if change.was_empty != change.is_empty else values
