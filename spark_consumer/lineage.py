"""Which changes make up which row, when rows change their keys. Plain values, no Spark.

Both functions walk a batch's changes in order, as PostgreSQL's apply worker does, but know only of
keys and positions: a row is a lineage, the list of changes that made it. Rows move, they are never
copied, so every change belongs to one lineage at most and the walk is linear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Bags", "Event", "Lineages", "trace_bags", "trace_keys"]

Operation: TypeAlias = Literal["put", "set", "delete", "move"]


@dataclass(frozen=True, slots=True)
class Event:
    """A change, as far as the walk needs it.

    Attributes:
        offset: Its Kafka offset, its name.
        old: Id of the key (the value, in a multiset) that the row must have before.
        new: Id of the key (the value) that it has afterwards.
    """

    offset: int
    operation: Operation
    old: int | None = None
    new: int | None = None


@dataclass(slots=True)
class Lineages:
    """How the rows of a keyed table come about.

    Attributes:
        changes: (offset of a change, id of the key its row has in the end).
        bases: (id of the key of a row in the table, id of the key it has in the end).
        present: Ids of the keys that have a row in the end.
    """

    changes: list[tuple[int, int]]
    bases: list[tuple[int, int]]
    present: set[int]


def trace_keys(events: Iterable[Event], present: Iterable[int]) -> Lineages:
    """Follow the rows of a keyed table through `events`, which are in order.

    A set, delete or move of a row that is not there is skipped, as the apply worker does.

    Args:
        events: all that happened to the keys, in order.
        present: ids of the keys that have a row in the table now.

    Source: apply_handle_update, apply_handle_delete in PostgreSQL's worker.c.
    """
    rows: dict[int, tuple[int | None, list[int]]] = {key: (key, []) for key in present}
    for event in events:
        if event.operation == "put":
            assert event.new is not None
            rows[event.new] = (None, [event.offset])
            continue
        assert event.old is not None
        row = rows.get(event.old)
        if row is None:
            continue
        if event.operation == "delete":
            del rows[event.old]
            continue
        row[1].append(event.offset)
        if event.operation == "move":
            assert event.new is not None
            del rows[event.old]
            rows[event.new] = row
    return Lineages(
        changes=[(offset, key) for key, (_, offsets) in rows.items() for offset in offsets],
        bases=[(base, key) for key, (base, _) in rows.items() if base is not None],
        present=set(rows),
    )


@dataclass(slots=True)
class Bags:
    """What happens to the rows of a multiset.

    Attributes:
        removed: Id of a value: how many of the table's rows with that value go.
        inserted: Offsets of the changes whose new row is there in the end.
    """

    removed: dict[int, int]
    inserted: list[int]


def trace_bags(events: Iterable[Event], present: dict[int, int]) -> Bags:
    """Follow the rows of a multiset through `events`, which are in order.

    A delete removes exactly one row that has the old value, a set or move replaces exactly one,
    both nothing when there is none. The table's own rows go first: they are the older ones.

    Args:
        events: all that happened to the values, in order.
        present: by id of a value, how many rows of the table have it now.
    """
    left = dict(present)
    removed: dict[int, int] = {}
    added: dict[int, deque[int]] = {}
    for event in events:
        if event.old is not None:
            if left.get(event.old, 0) > 0:
                left[event.old] -= 1
                removed[event.old] = removed.get(event.old, 0) + 1
            elif added.get(event.old):
                added[event.old].popleft()
            else:
                continue
        if event.new is not None:
            added.setdefault(event.new, deque()).append(event.offset)
    return Bags(removed, sorted(offset for offsets in added.values() for offset in offsets))
