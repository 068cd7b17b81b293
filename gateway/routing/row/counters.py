"""Counters of routed rows, for END markers and for monitoring.

The hot path only increments counters. Everything else is done once per transaction (`pop_counts`)
or periodically for all tables (`Router.tally`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from gateway.definitions.model import Table

__all__ = ["RowKey", "Tally", "TopicCounter", "pop_counts"]

RowOperation: TypeAlias = Literal["insert", "update", "delete", "truncate", "copy"]
"""Operation as the subscriber applies it, after filtering; ``copy`` is a copied row."""

RowKey: TypeAlias = tuple[str, str, RowOperation]
"""Subscription, table, operation."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals since the routes were built.

    Attributes:
        rows: Number of changes published, by subscription, table and operation.
        changes: Number of changes examined, by subscription and table.
    """

    rows: Mapping[RowKey, int] = field(default_factory=dict)
    changes: Mapping[tuple[str, str], int] = field(default_factory=dict)


_NUMBER: Final = attrgetter("number")


class TopicCounter:
    """Counters of one table's topic.

    Attributes:
        table: Qualified name of the table.
        table_oid: OID of the table.
        most_bytes: Maximum size of a record, as `gateway.core.records.wire_size` counts it.
        number: Index among all topics; lists of topics are in this order.
        feed: Index of the subscription among all.
        records: Number of records of the current transaction, without tombstones. Code that counts
            the first one adds the counter to
            `gateway.routing.row.transaction_state.TransactionState.touched`.
        others: Number of `records` that are not INSERTs at the source.
        inserts: Number of INSERTs of finished transactions, and of UPDATEs that became INSERTs.
        updates: Number of updates; a change of the key counts as one.
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
        """Reset `records`, which belong to no transaction; count them as copied if `rows`."""
        if rows:
            self.copied += self.records
        self.records = self.others = 0

    def rows(self) -> dict[RowKey, int]:
        """Return the totals published to the subscription."""
        key = (self.subscription, self.table)
        return {
            (*key, "insert"): self.inserts,
            (*key, "update"): self.updates,
            (*key, "delete"): self.deletes,
            (*key, "truncate"): self.truncates,
            (*key, "copy"): self.copied,
        }


def pop_counts(counters: Sequence[TopicCounter]) -> dict[str, list[tuple[str, int]]]:
    """Finish a transaction: return topics and record counts, by subscription with records.

    `counters` are those that the transaction touched, in any order, possibly repeated.
    """
    counts: dict[str, list[tuple[str, int]]] = {}
    for counter in sorted(counters, key=_NUMBER) if len(counters) > 1 else counters:
        if records := counter.records:
            counts.setdefault(counter.subscription, []).append((counter.topic, records))
            counter.inserts += records - counter.others
            counter.records = counter.others = 0
    return counts
