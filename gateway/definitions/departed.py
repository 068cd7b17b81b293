"""Relations that the source no longer has, while their last rows are still in the stream. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gateway.definitions.model import Plan

__all__ = ["with_departed"]


def with_departed(plan: Plan, before: Plan, gone: Collection[int]) -> Plan:
    """Return `plan` with what `before` published of the relations in `gone`.

    What a dropped relation was published as cannot change any more. Nothing else of `plan` changes:
    there is nothing of it to copy, and nothing to ask of the server.
    """
    kept = [publish for publish in before.publishes if publish.relation_oid in gone]
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
