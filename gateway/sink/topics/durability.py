"""Durability of topics: settings that let Kafka lose acknowledged records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.sink.topics.topics import TopicDescription

__all__ = ["Risk", "risks"]

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Risk:
    """Risk of losing records: the topics, and the setting that removes it.

    Attributes:
        grave: Whether acknowledged records can be lost; otherwise the loss is by design.
    """

    message: str
    hint: str
    grave: bool = True


def risks(tables: Iterable[TopicDescription], others: Iterable[TopicDescription]) -> Iterator[Risk]:
    """Yield the risks.

    Args:
        tables: Topics of tables and markers.
        others: Progress topic.
    """
    tables = sorted(tables, key=lambda topic: topic.name)
    every = [*tables, *others]
    unclean = [t for t in every if t.config.get("unclean.leader.election.enable") == "true"]
    if unclean:
        yield Risk(
            f"{_named(unclean)}: unclean.leader.election.enable = true: a replica that lacks "
            "acknowledged records can become the leader",
            "set unclean.leader.election.enable=false",
        )
    single = [topic for topic in every if topic.replicas == 1]
    if single:
        yield Risk(
            f"{_named(single)}: one replica: a disk that fails takes the records with it",
            "use three replicas ([topics] replication_factor, or the broker's default)",
        )
    loose = [t for t in every if t.replicas > 1 and _number(t, "min.insync.replicas", 1) < 2]
    if loose:
        yield Risk(
            f"{_named(loose)}: min.insync.replicas = 1: records that are on one broker only are "
            "acknowledged",
            "set min.insync.replicas=2",
        )
    short = [t for t in tables if not t.is_compacted and _number(t, "retention.ms", -1) >= 0]
    if short:
        days = min(_number(topic, "retention.ms", -1) for topic in short) / _DAY_MS
        yield Risk(
            f"{_named(short)}: retention.ms keeps records for {days:g} days: a reader that starts "
            "later, or was away for longer, finds an incomplete table",
            "set retention.ms in [topics] config for new topics, or have the tables copied for "
            "such a reader (`pgsluice copy TABLE`)",
            grave=False,
        )


def _number(topic: TopicDescription, name: str, default: int) -> int:
    try:
        return int(topic.config.get(name, default))
    except ValueError:
        return default


def _named(topics: list[TopicDescription]) -> str:
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"topic {topics[0].name}{more}"
