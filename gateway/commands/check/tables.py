"""Findings about the tables of a plan: columns, filters, privileges, publications."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from gateway.commands.check.findings import Finding, Severity, failed, fine
from gateway.config import Settings
from gateway.core.names import error_topic
from gateway.definitions.model import Definitions, Operation, Plan
from gateway.definitions.moving import formulas_of, inner_oids
from gateway.definitions.sql.expression import column_names
from gateway.definitions.tables.keys import identifies, key_of, unpublished
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing.build.moving_tables import hidden_parts
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.rowfilter.server.pushdown import is_exact_on, pushed
from gateway.runtime.planning.preflight import plan_refusals
from gateway.source.provisioning.detachable_partitions import missing_partitions
from gateway.source.provisioning.excess_privileges import excess_rights, planned_code
from gateway.source.provisioning.own_publications import check_publications
from gateway.source.session.connection import ServerFacts
from gateway.subselects.formula import subselects_of

__all__ = [
    "filter_findings",
    "history_findings",
    "key_findings",
    "mask_findings",
    "publication_findings",
    "push_down_findings",
    "rights_findings",
    "subselect_findings",
    "table_findings",
]


def publication_findings(
    connection: psycopg.Connection, settings: Settings, plan: Plan
) -> Iterator[Finding]:
    """Yield the statements that are still to be run, and by whom."""
    missing = check_publications(connection, plan, prefix=settings.source.slot)
    refusals = list(plan_refusals(settings, connection, plan))
    yield from (failed(part, error) for part, error in refusals)
    if refusals:
        return
    partitions = missing_partitions(connection, plan)
    for line in (*missing, *partitions.by_gateway):
        yield fine(f"publication to be made: {line}")
    if partitions.others:
        sql = "\n".join((f"{partitions.who}:", *partitions.by_owner))
        yield Finding(
            Severity.WARNING,
            f"publications: the gateway cannot add {partitions.others} of the partitions that stay "
            "published when they are detached: what is written to one after DETACH PARTITION, "
            "before the gateway has looked at the catalog again, would be lost",
            sql
            if partitions.by_owner
            else "once the gateway has made its publications, see pgsluice check --sql",
        )


def filter_findings(routes: RelationRoutes, settings: Settings) -> Iterator[Finding]:
    """Yield the filters that can fail on a row, and the consequences."""
    raising = routes.filters.may_raise()
    if not raising:
        return
    can_fail = (
        f"row filters: those of {', '.join(raising)} can fail on a row (overflow, division by zero "
        "and the like)"
    )
    if settings.on_error.filter == "quarantine":
        topic = error_topic(settings.gateway.name)
        yield fine(f"{can_fail}: such rows go to topic {topic}, and replication continues")
    else:
        yield Finding(
            Severity.FINE,
            f"{can_fail}: the gateway stops there, as a native subscription does",
            'to go on without such a row: [on_error] filter = "quarantine"',
        )


def subselect_findings(plan: Plan) -> Iterator[Finding]:
    """Yield the tables whose rows other tables select."""
    followed: dict[tuple[str, int], set[int]] = {}
    for copy in plan.copies:
        if inner := inner_oids(copy.filters):
            followed.setdefault((copy.subscription, copy.target_oid), set()).update(inner)
    hidden = hidden_parts(plan)
    formulas = formulas_of(plan)
    for (subscription, oid), inner in sorted(followed.items()):
        if not hidden.sets.isdisjoint(subselects_of(formulas[subscription, oid])):
            yield fine(
                f"table {plan.tables[oid]} of subscription {subscription} is copied again whenever "
                "the gateway begins to stream: a column that decides about its rows is masked, and "
                "no value of it is stored"
            )
        named = ", ".join(sorted(f"{plan.tables[each]}" for each in inner))
        yield fine(
            f"table {plan.tables[oid]} of subscription {subscription}: its rows are selected by "
            f"{named}, and move when that changes; no publication of a database can say it"
        )


def mask_findings(plan: Plan) -> Iterator[Finding]:
    """Yield the masked columns of each table."""
    masked = {(p.subscription, p.target_oid): p.masks for p in plan.publishes if p.masks}
    for (subscription, oid), masks in sorted(masked.items()):
        named = ", ".join(f"{name} ({mask})" for name, mask in masks)
        yield fine(f"table {plan.tables[oid]} of subscription {subscription}: masked are {named}")


def key_findings(plan: Plan, settings: Settings) -> Iterator[Finding]:
    """Yield the keys and partitions that ``[topics]`` chooses."""
    tables = {str(plan.tables[oid]): plan.tables[oid] for _, oid in plan.targets}
    for name, table in sorted(tables.items()):
        chosen, columns = settings.topics.chosen(name), {column.name for column in table.columns}
        if chosen.partition:
            yield fine(f"table {name}: its partitions are chosen by {', '.join(chosen.partition)}")
        if not chosen.key:
            continue
        shared = "" if identifies(key_of(table, columns), chosen) else ", which rows can share"
        yield Finding(
            Severity.FINE,
            f"table {name}: the key of its records is {', '.join(chosen.key)}{shared}",
            "no tombstone follows its deletes, and compaction would lose rows; a consumer knows "
            "rows by `pg_identity` of the schema of the values"
            if shared
            else "",
        )


def history_findings(plan: Plan, settings: Settings) -> Iterator[Finding]:
    """Warn of tables that are to have a history and are not published."""
    # Another group's gateway may publish them.
    if settings.group is None:
        for warning in unpublished(plan, "[consumer] history", settings.consumer.history):
            yield Finding(Severity.WARNING, warning)


def table_findings(plan: Plan) -> Iterator[Finding]:
    """Yield the tables whose records lack large values that an UPDATE leaves as they are."""
    updated = {p.target_oid for p in plan.publishes if Operation.UPDATE in p.operations}
    filtered = {
        publish.target_oid
        for publish in plan.publishes
        if any(clause.formula is None for clause in publish.filters.get(Operation.UPDATE, ()))
    }
    for oid in sorted(updated):
        table = plan.tables[oid]
        lost = sorted(table.may_toast.difference(table.identity))
        if not lost or table.replica_identity is ReplicaIdentity.FULL:
            continue
        if oid not in filtered:
            yield Finding(
                Severity.FINE,
                f"table {table}: large values of {', '.join(lost)} that an UPDATE leaves as they "
                "are are not in its record, which names them in `unchanged`",
                "where a consumer ignores that, and writes NULL: "
                f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL",
            )
        else:
            yield Finding(
                Severity.WARNING,
                f"table {table}: when an UPDATE of the key makes a row enter a filter, large "
                f"unchanged values of {', '.join(lost)} are not in the WAL; the subscriber gets "
                "NULL, as a native one does",
                f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL, if such updates happen",
            )


def rights_findings(
    connection: psycopg.Connection, plan: Plan, facts: ServerFacts
) -> Iterator[Finding]:
    """Warn of excess privileges of the role, and of foreign code that could use them."""
    excess = excess_rights(connection, plan.tables)
    if excess:
        yield Finding(
            Severity.WARNING,
            f"source: role {facts.user} can do more than the gateway needs: {'; '.join(excess)}",
            'use a role of its own: see "Rights of the role" in docs/operations.md',
        )
    for oid, what, function, owner in planned_code(connection, plan.tables):
        yield Finding(
            Severity.WARNING,
            f"table {plan.tables[oid]}: {what} calls {function} of role {owner}, which PostgreSQL "
            "may run with the gateway's rights when the table is read",
            "give the function to a superuser, or the gateway a role that can do nothing else",
        )


def push_down_findings(
    plan: Plan, definitions: Definitions, facts: ServerFacts
) -> Iterator[Finding]:
    """Yield the risks of push-down, and the tables without it."""
    if not is_exact_on(facts.version_num):
        yield Finding(
            Severity.WARNING,
            "push-down: nothing is pushed down on this release of PostgreSQL, which can lose rows "
            "where a publication's filter is altered",
            "update the source to 15.13, 16.9, 17.5 or later",
        )
        return
    for oid, found in sorted(pushed(plan, definitions).items()):
        table = plan.tables[oid]
        if isinstance(found, str):
            yield fine(f"push-down: not for table {table}: {found}")
            continue
        read = sorted(frozenset().union(*map(column_names, found)))
        yield Finding(
            Severity.WARNING,
            f"push-down: the server filters table {table} by {', '.join(read)}: every UPDATE and "
            "DELETE of it fails while its replica identity lacks one of these columns, and they "
            "cannot be dropped or given another type",
            "keep the identity as it is, or set [filters] pushdown = false",
        )
