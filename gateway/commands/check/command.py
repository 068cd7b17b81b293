"""Preflight of all parts, and statements for the owner of the tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg

from gateway.commands.check.findings import Finding, Severity, failed, fine, guarded
from gateway.commands.check.server import event_trigger_findings, server_findings, slot_findings
from gateway.commands.check.services import Services
from gateway.commands.check.tables import (
    filter_findings,
    history_findings,
    key_findings,
    mask_findings,
    publication_findings,
    push_down_findings,
    rights_findings,
    subselect_findings,
    table_findings,
)
from gateway.commands.check.topics import owner_findings, topic_findings
from gateway.commands.check.values import type_findings, unchanged_findings, value_findings
from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.core.display import counted, lines_shown, say
from gateway.core.errors import FatalError, GatewayError
from gateway.definitions.model import Definitions, HeldTable, Plan
from gateway.monitor.remedies import remedy_of
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.preflight import local_refusals, server_refusals
from gateway.runtime.planning.setup import known_plan, make_evaluator
from gateway.source.provisioning.detachable_partitions import missing_partitions
from gateway.source.provisioning.own_publications import missing_rights
from gateway.source.session.connection import ServerFacts, connect, server_facts
from gateway.source.stream.slot import slot_status

__all__ = ["check", "print_statements"]


def print_statements(settings: Settings) -> int:
    """Print the SQL that an owner of the tables has to run, and nothing else; return 0.

    A statement that gives the role more than these tables is a comment: an owner of one of them can
    cause it, by row security, and whoever pipes the SQL to psql may be a superuser.

    Raises:
        DefinitionError: the definitions cannot be served.
        TransientError: a server does not answer.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        plan = known_plan(settings, connection, definitions, facts)
        granted = _granted(settings, connection, definitions, facts, plan)
        lines = missing_rights(connection, granted, prefix=settings.source.slot)
        for line in lines or missing_partitions(connection, granted).by_owner:
            say(line)
        held = (*plan.held, *granted.held)
        # Once, where several subscriptions have the table.
        for statement in dict.fromkeys(sql for one in held for sql in one.statements):
            say(f"{statement};")
        for line in dict.fromkeys(map(_comment, (one for one in held if one.by_hand))):
            say(line)
    if any(not (one.statements or one.by_hand) for one in granted.held):
        print(
            "pgsluice: some tables are held for other reasons; `pgsluice check` names them",
            file=sys.stderr,
        )
    return 0


def _granted(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    facts: ServerFacts,
    plan: Plan,
) -> Plan:
    """Return the plan of the time when the owners have run the statements of `plan`'s held tables.

    A table that may be read is published as well, so both are said at once.
    """
    if not any(held.statements for held in plan.held):
        return plan
    return known_plan(settings, connection, definitions, facts, readable=True)


def _comment(held: HeldTable) -> str:
    return (
        f"-- {'; '.join(held.by_hand)}; (row security of table {held.schema}.{held.table}; by hand "
        "only: it lifts that of all tables for the role)"
    )


def check(settings: Settings) -> int:
    """Print the findings; return 1 when one of them is an error, else 0."""
    worst = 0
    with ThreadPoolExecutor() as threads:
        for finding in _findings(settings, Services(settings, threads)):
            print(lines_shown(finding), flush=True)
            worst |= finding.severity is Severity.ERROR
    return worst


def _findings(settings: Settings, services: Services) -> Iterator[Finding]:
    for warning in settings.warnings:
        yield Finding(Severity.WARNING, warning)
    definitions: Definitions | None = None
    try:
        definitions = read_definitions(settings)
        yield fine(
            f"definitions: {counted(len(definitions.publications), 'publication')}, "
            f"{counted(len(definitions.subscriptions), 'subscription')}"
        )
    except GatewayError as error:
        yield failed("definitions", error)
    runs = False
    try:
        with connect(settings.source.dsn) as connection:
            status = slot_status(connection, settings.source.slot)
            runs = status is not None and status.active
            yield from _source_findings(connection, settings, definitions, services)
    except GatewayError as error:
        yield failed("source", error)
    for part, refusal in local_refusals(settings):
        if part == "http" and runs:
            yield fine(f"http: {settings.http.listen} is in use; a gateway runs")
        else:
            yield failed(part, refusal)
    yield from services.findings()


def _source_findings(
    connection: psycopg.Connection,
    settings: Settings,
    definitions: Definitions | None,
    services: Services,
) -> Iterator[Finding]:
    facts = server_facts(connection)
    major = facts.version_num // 10000
    yield fine(f"source: PostgreSQL {major}, database {facts.database}")
    for part, error in server_refusals(settings, connection, facts):
        yield failed(part, error)
    yield from server_findings(facts, settings)
    yield from guarded("slot", lambda: slot_findings(connection, settings, facts))
    if definitions is None:
        return
    yield from services.findings()
    failed_reads: dict[str, FatalError] = {}
    if services.all_answer():
        yield from guarded(
            "topics", lambda: owner_findings(connection, settings, facts, definitions, failed_reads)
        )
    knows_states = services.kafka_answers()
    if knows_states:
        plan = known_plan(settings, connection, definitions, facts)
    else:
        plan = read_plan(settings, connection, definitions)
    for warning in plan.warnings:
        yield Finding(Severity.WARNING, warning)
    for held in plan.held:
        yield Finding(
            Severity.ERROR if held.listed else Severity.WARNING,
            f"table {held.schema}.{held.table} of subscription {held.subscription} is held: "
            f"{held.reason}",
            remedy_of(held.cause, (held.schema, held.table)),
        )
    yield fine(f"definitions: {counted(len(plan.copies), 'subscriber table')} with an initial copy")
    if services.kafka_answers():
        yield from guarded("kafka", lambda: topic_findings(settings, facts, plan, failed_reads))
    # Each part by itself: a fault of one hides nothing of the others.
    yield from guarded("source", lambda: _route_findings(connection, settings, facts, plan))
    yield from subselect_findings(plan)
    yield from mask_findings(plan)
    yield from key_findings(plan, settings)
    yield from history_findings(plan, settings)
    yield from table_findings(plan)
    yield from type_findings(plan, settings)
    yield from unchanged_findings(plan, settings)
    yield from guarded("values", lambda: value_findings(connection, settings, plan))
    yield from guarded("rights", lambda: rights_findings(connection, plan, facts))
    yield from guarded("source", lambda: event_trigger_findings(connection, definitions))
    if settings.filters.pushdown:
        yield from push_down_findings(plan, definitions, facts)
    # After all that is known without it: it reads Kafka once more.
    granted = _granted(settings, connection, definitions, facts, plan) if knows_states else plan
    yield from publication_findings(connection, settings, granted)


def _route_findings(
    connection: psycopg.Connection, settings: Settings, facts: ServerFacts, plan: Plan
) -> Iterator[Finding]:
    """Yield who evaluates each filter, after every filter and every schema has been compiled."""
    routes = routes_of(connection, plan, facts, settings, CollectedSchemas())
    for row_filter, who in routes.filters.evaluations():
        yield fine(f"{row_filter}: {who}")
    if routes.filters.ask_server and settings.filters.dsn is not None:
        yield from guarded("row filters", lambda: _evaluator_findings(settings))
    yield from filter_findings(routes, settings)


def _evaluator_findings(settings: Settings) -> Iterator[Finding]:
    with closing(make_evaluator(settings)) as evaluator:
        evaluator.open()
    yield fine("row filters: the server of [filters] dsn answers as the source does")
