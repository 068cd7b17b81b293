"""Relations that are no longer published and may still have rows in the stream. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gateway.definitions.model import Plan

__all__ = ["with_retired"]


def with_retired(
    plan: Plan,
    before: Plan,
    gone: Collection[int],
    moved: Collection[int] = (),
    untouched: Collection[tuple[str, int]] = (),
) -> Plan:
    """Return `plan` extended by what `before` published of the relations in `gone`.

    Nothing else of `plan` changes: the relations are neither copied nor published on the server.
    Relations that `plan` publishes itself stay as they are, except those in `moved` and in
    `untouched`, which has subscriptions and relations.
    """
    returned = {*gone, *moved}
    now = {
        (publish.subscription, publish.relation_oid)
        for publish in plan.publishes
        if publish.relation_oid not in moved
        and (publish.subscription, publish.relation_oid) not in untouched
    }
    kept = [
        publish
        for publish in before.publishes
        if (pair := (publish.subscription, publish.relation_oid)) not in now
        and (publish.relation_oid in returned or pair in untouched)
    ]
    if not kept:
        return plan
    earlier = frozenset((publish.subscription, publish.relation_oid) for publish in kept)
    targets = {(publish.subscription, publish.target_oid) for publish in kept}
    others = [
        # A tree that is read under its root continues.
        replace(p, relation_oid=p.target_oid) if pair in earlier else p
        for p in plan.publishes
        if (pair := (p.subscription, p.relation_oid)) not in earlier
        or (p.target_oid != p.relation_oid and (p.subscription, p.target_oid) not in targets)
    ]
    oids = {oid for publish in kept for oid in (publish.relation_oid, publish.target_oid)}
    tables = {oid: before.tables[oid] for oid in sorted(oids)}
    return replace(
        plan,
        tables={**tables, **plan.tables},
        publishes=(*others, *kept),
        retired=frozenset((publish.subscription, publish.target_oid) for publish in kept),
        earlier=earlier,
    )
