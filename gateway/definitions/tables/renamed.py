"""Topics of renamed tables that keep their topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.core.names import topic_name
from gateway.core.watermark import CopyState
from gateway.definitions.model import Plan

__all__ = ["kept_topics"]


def kept_topics(
    plan: Plan, states: Iterable[CopyState], names: Mapping[str, str]
) -> Mapping[str, str]:
    """Return ``[topics] names`` with an entry for each renamed table: its previous topic.

    Tables are identified by OID. An entry of `names` takes precedence, and a topic belongs to the
    table that it is named after if there is one.

    Args:
        plan: Plan with the current names.
        states: States with the topics used so far.
        names: Topic names as configured.
    """
    taken = {(p.subscription, p.target_oid) for p in plan.publishes}
    taken |= {(copy.subscription, copy.target_oid) for copy in plan.copies}
    topics = {(s.subscription, s.oid): s.topic for s in states if s.oid and s.topic}
    own = {
        (subscription, oid): topic_name(
            subscription, plan.tables[oid].schema, plan.tables[oid].name
        )
        for subscription, oid in taken
    }
    kept = dict(names)
    for (subscription, oid), default in own.items():
        name = f"{subscription}.{plan.tables[oid].schema}.{plan.tables[oid].name}"
        topic = topics.get((subscription, oid), default)
        if name not in names and topic != default and topic not in own.values():
            kept[name] = topic
    return kept
