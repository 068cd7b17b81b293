"""Relations that are gone or not published any more, and whose last rows may be in the stream.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gateway.definitions.model import Plan

__all__ = ["with_departed"]


def with_departed(plan: Plan, before: Plan, gone: Collection[int]) -> Plan:
    """Return `plan` with what `before` published of the relations in `gone`.

    Nothing else of `plan` changes: there is nothing of them to copy, and nothing to ask of the
    server. What `plan` publishes itself, it publishes in its own way.
    """
    now = {(publish.subscription, publish.relation_oid) for publish in plan.publishes}
    kept = [
        publish
        for publish in before.publishes
        if publish.relation_oid in gone and (publish.subscription, publish.relation_oid) not in now
    ]
    if not kept:
        return plan
    oids = {oid for publish in kept for oid in (publish.relation_oid, publish.target_oid)}
    tables = {oid: before.tables[oid] for oid in sorted(oids)}
    return replace(
        plan,
        tables={**tables, **plan.tables},
        publishes=(*plan.publishes, *kept),
        departed=frozenset((publish.subscription, publish.target_oid) for publish in kept),
    )
