"""A table whose rows enter or leave a subscription because another table has changed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MovingTable"]


@dataclass(frozen=True, slots=True)
class MovingTable:
    """A table whose rows move.

    Attributes:
        since: Time since when they do, in seconds since 1970; None if it is not known.
        unsettled: Number of values and keys whose rows are still to be read.
        moved_rows: Number of rows that were read because of that so far.
    """

    subscription: str
    table: str
    since: float | None
    unsettled: int
    moved_rows: int
