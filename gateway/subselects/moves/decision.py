"""Record of a changed row for one subscription, by what the subscriber has of it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gateway.subselects.formula import Truth

__all__ = ["Decision", "Sending", "decide"]


class Sending(Enum):
    """Record for a subscription.

    REMOVE is a ``d`` of a row that the subscriber may have, and perhaps with other values: it names
    the row and has none of them. REPLACE is such a ``d`` of the old key, if the key has changed,
    and a ``c`` that is no half of a key change: the subscriber has the new row afterwards, whatever
    it had.
    """

    NOTHING = "nothing"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    REMOVE = "remove"
    REPLACE = "replace"


class Decision(NamedTuple):
    """A record, and whether the row has to be read by its key as well."""

    sending: Sending
    read_key: bool = False


def decide(has: Truth, *, wanted: bool, whole: bool) -> Decision:
    """Return what is sent of a change.

    Args:
        has: Whether the subscriber has the old row.
        wanted: Whether it is to have the new one.
        whole: Whether all values of the new row are known.
    """
    match has, wanted:
        case Truth.YES, True:
            return Decision(Sending.UPDATE)
        case Truth.NO, True:
            return Decision(Sending.INSERT) if whole else Decision(Sending.NOTHING, read_key=True)
        case Truth.MAYBE, True:
            return Decision(Sending.REPLACE) if whole else Decision(Sending.UPDATE, read_key=True)
        case Truth.NO, _:
            return Decision(Sending.NOTHING)
        case Truth.MAYBE, _:
            return Decision(Sending.REMOVE)
        case _:
            return Decision(Sending.DELETE)
