"""What is counted while rows are routed: for END markers, and for whoever watches the gateway.

The hot path only adds one to a number here and there. Everything else is done once per transaction
(`take_counts`), or once in a while for all tables together (`tally`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from gateway.definitions.model import Table

__all__ = ["RowKey", "Tally", "TopicCounter", "take_counts"]

RowOperation: TypeAlias = Literal["insert", "update", "delete", "truncate", "copy"]
"""What a subscriber does with it, so after filtering; ``copy`` is a row of a copied table."""

RowKey: TypeAlias = tuple[str, str, RowOperation]
"""Subscription, table, operation."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals since the routes were made.

    Attributes:
        rows: Changes that a subscription took.
        changes: By subscription and table, the changes that were looked at for it.
    """

    rows: Mapping[RowKey, int] = field(default_factory=dict)
    changes: Mapping[tuple[str, str], int] = field(default_factory=dict)


_NUMBER: Final = attrgetter("number")


class TopicCounter:
    """A table's topic, and what was published there.

    Attributes:
        table: Schema and name, as one text.
        table_oid: Of the table.
        most_bytes: Of a record, as `gateway.core.records.wire_size` counts them.
        number: Among all topics; what is said of several is in this order.
        feed: The place of the subscription among all.
        records: Those of the transaction under way, tombstones left out. Whoever counts the first
            one says so to the transaction
            (`gateway.routing.row.transaction_state.TransactionState.touched`).
        others: How many of `records` are not of an INSERT that was one at the source, too.
        inserts: By UPDATEs that became INSERTs; and in transactions that have ended, all others.
        updates: A change of the key counts as one.
    """

    __slots__ = (
        "copied",
        "deletes",
        "feed",
        "inserts",
        "most_bytes",
        "number",
        "others",
        "partitions",
        "records",
        "subscription",
        "table",
        "table_oid",
        "topic",
        "truncates",
        "updates",
    )

    def __init__(
        self,
        topic: str,
        subscription: str,
        table: Table,
        partitions: int,
        most_bytes: int,
        number: int,
        feed: int,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self.table = str(table)
        self.table_oid = table.oid
        self.partitions = partitions
        self.most_bytes = most_bytes
        self.number = number
        self.feed = feed
        self.records = self.others = 0
        self.inserts = self.updates = self.deletes = self.truncates = self.copied = 0

    def end_copy(self, *, rows: bool) -> None:
        """Forget `records`, which belong to no transaction; they are rows that were copied."""
        if rows:
            self.copied += self.records
        self.records = self.others = 0

    def rows(self) -> dict[RowKey, int]:
        """Return what the subscription took in all."""
        key = (self.subscription, self.table)
        return {
            (*key, "insert"): self.inserts,
            (*key, "update"): self.updates,
            (*key, "delete"): self.deletes,
            (*key, "truncate"): self.truncates,
            (*key, "copy"): self.copied,
        }


def take_counts(counters: Sequence[TopicCounter]) -> dict[str, list[tuple[str, int]]]:
    """End a transaction: topics and numbers of records of each subscription that had any.

    `counters` are those that the transaction has touched, in any order, some of them twice.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for counter in sorted(counters, key=_NUMBER) if len(counters) > 1 else counters:
        if records := counter.records:
            found.setdefault(counter.subscription, []).append((counter.topic, records))
            counter.inserts += records - counter.others
            counter.records = counter.others = 0
    return found
