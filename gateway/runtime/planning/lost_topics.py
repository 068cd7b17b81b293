"""Topics that have lost records: found at a start, and after an attempt that met one.

`gateway.runtime.planning.lost_records` defines what is lost. By ``[topics] on_lost_records``, their
tables are pending then, which is committed before the known ends of the topics are forgotten: a
crash in between finds the loss again. Or they are held until a copy is requested, as is a table
whose topic has another number of partitions; the known ends are kept for as long.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.config import Settings
from gateway.core.errors import FatalError, HeldCause
from gateway.core.names import topic_of, transaction_topic
from gateway.core.watermark import CopyState, hint_of
from gateway.definitions.model import Fault, TableId
from gateway.definitions.requests import is_asked
from gateway.observe import event
from gateway.runtime.planning.lost_records import (
    MADE_AGAIN,
    changed_partitions,
    lost_markers,
    lost_records,
    table_topics_of,
    topic_of_state,
)
from gateway.runtime.planning.routes import Outside
from gateway.runtime.planning.setup import (
    Setup,
    recall,
    set_up,
    slot_identity,
    with_topics,
)
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.requests import forget_offsets
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import read_log_bounds
from gateway.sink.topics.topic_ids import other_topics

__all__ = ["LostTopics", "find_lost", "forget_lost", "hold_lost", "unknown_ends"]

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LostTopics:
    """Measures for topics that have changed since they were written to.

    Attributes:
        topics: Topics whose tables are copied again.
        faults: Faults of tables that are held until their copy is requested.
    """

    topics: frozenset[str] = frozenset()
    faults: Mapping[TableId, Fault] = field(default_factory=dict)


def hold_lost(
    settings: Settings,
    setup: Setup,
    outside: Outside,
    recovered: CommittedState,
    seen: Collection[str],
    faults: Mapping[TableId, Fault],
    *,
    was_down: bool,
) -> tuple[Settings, Setup, frozenset[str]]:
    """Return settings and setup for the committed state, and the topics that are copied again.

    The setup has the recalled tables, without those that are held for their topics; the settings
    have the topics that renamed tables keep.

    Args:
        settings: The configuration.
        setup: Setup as it follows from the configuration alone.
        outside: The connection to the source, and the registry.
        recovered: Committed progress.
        seen: As in `find_lost`.
        faults: Faults of tables that are held for other reasons.
        was_down: As in `gateway.runtime.planning.setup.recall`.

    Raises:
        FatalError, TransientError: as `find_lost` and `gateway.runtime.planning.setup.set_up`.
    """
    watermark, connection = recovered.watermark, outside.connection
    if watermark is None:
        return settings, setup, frozenset()
    held = dict(faults)
    while True:
        kept = with_topics(settings, setup.plan, watermark.copies, setup.names)
        setup = recall(setup, kept, connection, watermark, was_down=was_down)
        lost = find_lost(kept, setup, recovered, seen)
        if not lost.faults:
            return kept, setup, lost.topics
        held |= lost.faults
        setup = set_up(
            settings, connection, outside.registry, setup.definitions, held, hidden=setup.hidden
        )


def find_lost(
    settings: Settings, setup: Setup, recovered: CommittedState, seen: Collection[str]
) -> LostTopics:
    """Find and log the topics that lack records, or have another number of partitions.

    Args:
        settings: The configuration.
        setup: Setup of that configuration; all topics exist.
        recovered: Committed progress.
        seen: Topics that an attempt before has found to lack records.

    Raises:
        FatalError: a table would have to be held, and ``[definitions] on_table_error`` is to stop.
        TransientError: Kafka does not answer.
    """
    if recovered.watermark is None:
        return LostTopics()
    states, names = recovered.watermark.copies, setup.routing.topic_names
    held = {topic_of_state(state, names): state for state in states if state.waits_for_request}
    asked = {topic_of_state(s, names) for s in states if is_asked(s, recovered.requests)}
    copied = {(copy.subscription, copy.target_oid) for copy in setup.plan.copies}
    lost, faults = set(), {}
    for table_id, topic, cause, why in _found(settings, setup, recovered, seen, held):
        again = cause == "lost" and settings.topics.on_lost_records == "copy"
        again |= topic in asked or table_id in setup.plan.retired
        holds = not again and (cause == "partitions" or table_id in copied)
        table = setup.plan.tables[table_id[1]]
        hint = hint_of(cause, (table.schema, table.name))
        if topic not in held:
            event(
                _LOG,
                logging.ERROR,
                "records lost in Kafka" if cause == "lost" else "partitions changed in Kafka",
                topic=topic,
                because=why,
                then="held" if holds else "copied again" if table_id in copied else "goes on",
                hint=hint if holds else "",
            )
        if not holds:
            lost.add(topic)
        elif settings.definitions.on_table_error == "stop":
            raise FatalError(why, hint=f"{hint}; with --no-wait, then start again")
        else:
            faults[table_id] = Fault(why, always=True, cause=cause)
    return LostTopics(frozenset(lost), faults)


def _found(
    settings: Settings,
    setup: Setup,
    recovered: CommittedState,
    seen: Collection[str],
    held: Mapping[str, CopyState],
) -> Iterator[tuple[TableId, str, HeldCause, str]]:
    """Yield table, topic, cause and reason of each table of the plan with a lost topic."""
    assert recovered.watermark is not None
    plan, names, partitions = setup.plan, setup.routing.topic_names, setup.routing.partitions
    muted = setup.routing.muted
    subscriptions = [s.name for s in plan.subscriptions if s.name not in muted]
    markers = {transaction_topic(name): name for name in subscriptions}
    known = {t: n for t, n in partitions.items() if t in recovered.offsets}
    bounds = read_log_bounds(settings.kafka, {**known, **dict.fromkeys(markers, 1)})
    lost = lost_records(recovered.offsets, {topic: bounds[topic] for topic in known})
    others = other_topics(recovered.topic_ids, setup.topic_ids)
    lost |= {topic: MADE_AGAIN for topic in others if topic in partitions}
    for topic in set(seen).intersection(known):
        lost.setdefault(topic, "it was deleted while the gateway wrote to it")
    gone = lost_markers(subscriptions, recovered.watermark.copies, bounds)
    gone |= {name for topic, name in markers.items() if topic in seen or topic in others}
    for name in sorted(gone):
        for topic in table_topics_of(plan, names, [name]):
            lost[topic] = f"the markers in {transaction_topic(name)} are gone"
    changed = changed_partitions(partitions, recovered.offsets)
    for name, oid in sorted(plan.targets):
        table = plan.tables[oid]
        topic = topic_of(name, table.schema, table.name, names)
        if topic in lost:
            yield (name, oid), topic, "lost", f"Kafka has lost records of {topic}: {lost[topic]}"
        elif topic in changed:
            yield (name, oid), topic, "partitions", changed[topic]
        elif topic in held:  # and found when that began
            yield (name, oid), topic, held[topic].cause, held[topic].reason


def forget_lost(
    settings: Settings,
    setup: Setup,
    registry: Registry,
    recovered: CommittedState,
    lost: Collection[str],
) -> None:
    """Forget the ends of topics that have lost records, now that their copies are pending.

    Raises:
        TransientError: Kafka does not answer.
    """
    identity = slot_identity(setup.facts, settings)
    known = set(lost).intersection(recovered.offsets)
    forget_offsets(settings.kafka, settings.topics.progress, identity, registry, sorted(known))


def unknown_ends(
    settings: Settings, setup: Setup, recovered: CommittedState, lost: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """Return the current ends of partitions, for topics without a known end.

    Raises:
        TransientError: Kafka does not answer.
    """
    unknown = {
        topic: partitions
        for topic, partitions in setup.routing.partitions.items()
        if topic in lost or topic not in recovered.offsets
    }
    bounds = read_log_bounds(settings.kafka, unknown)
    return {topic: tuple(each.end for each in found) for topic, found in bounds.items()}
