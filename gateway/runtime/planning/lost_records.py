"""Lost records of topics: acknowledged by Kafka, and no longer there. Pure.

The progress topic knows the end of each partition. A partition that ends before that has lost
records, whatever the reason: the topic was deleted and made again, or a lagging replica has become
the leader. Removal from the beginning is retention, and no loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.copy import Progress
from gateway.core.names import topic_of, transaction_topic
from gateway.core.watermark import CopyState
from gateway.definitions.model import Plan
from gateway.sink.topics.log_bounds import LogBounds

__all__ = [
    "MADE_AGAIN",
    "changed_partitions",
    "copied_again",
    "lost_markers",
    "lost_records",
    "table_topics_of",
    "topic_of_state",
]

MADE_AGAIN: Final = "it was deleted and made again: Kafka knows it by another ID"
_NOT_THERE = frozenset({"pending", "missing", "held", "gone"})


def lost_records(
    written: Mapping[str, Sequence[int]], bounds: Mapping[str, Sequence[LogBounds]]
) -> dict[str, str]:
    """Return the topics that have lost records, and the evidence.

    Args:
        written: Committed end offset of each partition, by topic.
        bounds: Current bounds of the partitions; topics that are not in it are not checked.
    """
    found = {}
    for topic, parts in bounds.items():
        for number, (known, now) in enumerate(zip(written.get(topic, ()), parts, strict=False)):
            if now.end < known:
                found[topic] = (
                    f"partition {number} ends at offset {now.end}, and records until {known} were "
                    "written: it was deleted, or a replica that lacked them has become the leader"
                )
                break
    return found


def lost_markers(
    subscriptions: Iterable[str],
    states: Iterable[CopyState],
    bounds: Mapping[str, Sequence[LogBounds]],
) -> set[str]:
    """Return the subscriptions that have published, and whose marker topic has never had a record.

    Args:
        subscriptions: Names of the subscriptions.
        states: Committed states of all tables.
        bounds: Bounds of the marker topics.
    """
    published = {state.subscription for state in states if state.state not in _NOT_THERE}
    return {
        name
        for name in subscriptions
        if name in published and all(part.end == 0 for part in bounds[transaction_topic(name)])
    }


def table_topics_of(
    plan: Plan, names: Mapping[str, str], subscriptions: Collection[str]
) -> set[str]:
    """Return the topics of all tables of some subscriptions; `names` as in ``[topics]``."""
    return {
        topic_of(copy.subscription, table.schema, table.name, names)
        for copy in plan.copies
        if copy.subscription in subscriptions
        for table in (plan.tables[copy.target_oid],)
    }


def copied_again(
    states: Iterable[CopyState], topics: Collection[str], names: Mapping[str, str]
) -> tuple[CopyState, ...]:
    """Return the states in which the tables of `topics` are to be copied from their beginning."""
    return tuple(
        replace(state, state="pending", consistent_point=None, progress=Progress(), asked=None)
        if state.state in ("ready", "copying") and topic_of_state(state, names) in topics
        else state
        for state in states
    )


def changed_partitions(
    now: Mapping[str, int], known: Mapping[str, Sequence[int]]
) -> dict[str, str]:
    """Return the topics that have another number of partitions than when they were written to.

    Args:
        now: Number of partitions, by topic.
        known: End offset of each partition at the last write, by topic.
    """
    return {
        topic: f"topic {topic} has {partitions} partitions, it had {before}: records of one key "
        "would change their partition"
        for topic, partitions in now.items()
        if (before := len(known.get(topic, ()))) not in (0, partitions)
    }


def topic_of_state(state: CopyState, names: Mapping[str, str]) -> str:
    """Return the topic of a table; `names` as in ``[topics]``."""
    return state.topic or topic_of(state.subscription, state.schema, state.table, names)
