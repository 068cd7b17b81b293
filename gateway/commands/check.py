"""``pgsluice check``: a preflight with a remedy for each finding.

Nothing is created or changed. Every part is checked, even if another has failed, so that one run
shows everything there is to repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Final

import psycopg

from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.core.display import lines_shown, say
from gateway.core.errors import FatalError, GatewayError
from gateway.core.names import error_topic, transaction_topic
from gateway.definitions.model import Definitions, Operation, Plan
from gateway.definitions.sql.expression import column_names
from gateway.monitor.status import retention_problem
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.rowfilter.server.pushdown import is_exact_on, pushed
from gateway.runtime.planning.lost_records import MADE_AGAIN, changed_partitions, lost_records
from gateway.runtime.planning.ownership import refuse_foreign_topics
from gateway.runtime.planning.plan import read_definitions
from gateway.runtime.planning.preflight import local_refusals, plan_refusals, server_refusals
from gateway.runtime.planning.setup import known_plan, make_evaluator, slot_identity
from gateway.runtime.planning.topics import shared_topics, table_topics
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.durability import risks
from gateway.sink.topics.log_bounds import read_log_bounds
from gateway.sink.topics.topic_ids import ids_of, other_topics
from gateway.sink.topics.topics import describe_topics
from gateway.sink.topics.usability import examine_topics
from gateway.source.provisioning.excess_privileges import excess_rights, planned_code
from gateway.source.provisioning.own_publications import check_publications, missing_rights
from gateway.source.provisioning.trigger_installation import find_installation
from gateway.source.session.connection import ServerFacts, connect, server_facts, wal_flush_lsn
from gateway.source.session.server_support import untested
from gateway.source.stream.slot import SlotStatus, check_slot, slot_status

__all__ = ["check", "print_statements"]


class Severity(Enum):
    """Severity of a finding."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    FINE = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report, and the remedy."""

    severity: Severity
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        lines = f"{self.severity.value:8}{self.message}".split("\n")
        if self.hint is not None:
            lines += [f"-> {line}" for line in self.hint.split("\n")]
        return "\n        ".join(lines)


def print_statements(settings: Settings) -> int:
    """Print the SQL that an owner of the tables has to run, and nothing else; return 0.

    Raises:
        DefinitionError: the definitions cannot be served.
        TransientError: a server does not answer.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        plan = known_plan(settings, connection, definitions, server_facts(connection))
        for line in missing_rights(connection, plan, prefix=settings.source.slot):
            say(line)
        for held in plan.held:
            if held.statement:
                say(f"{held.statement};")
    return 0


def check(settings: Settings) -> int:
    """Print the findings; return 1 when one of them is an error, else 0."""
    worst = 0
    for finding in _findings(settings):
        print(lines_shown(finding), flush=True)
        worst |= finding.severity is Severity.ERROR
    return worst


def _findings(settings: Settings) -> Iterator[Finding]:
    for warning in settings.warnings:
        yield Finding(Severity.WARNING, warning)
    definitions: Definitions | None = None
    try:
        definitions = read_definitions(settings)
        yield _fine(
            f"definitions: {len(definitions.publications)} publications, "
            f"{len(definitions.subscriptions)} subscriptions"
        )
    except GatewayError as error:
        yield _failed("definitions", error)
    runs = False
    try:
        with connect(settings.source.dsn) as connection:
            status = slot_status(connection, settings.source.slot)
            runs = status is not None and status.active
            yield from _source_findings(connection, settings, definitions)
    except GatewayError as error:
        yield _failed("source", error)
    for part, refusal in local_refusals(settings):
        if part == "http" and runs:
            yield _fine(f"http: {settings.http.listen} is in use; a gateway runs")
        else:
            yield _failed(part, refusal)
    yield from _guarded("kafka", lambda: _kafka_findings(settings))
    yield from _guarded("registry", lambda: _registry_findings(settings))


def _guarded(part: str, find: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from find()
    except GatewayError as error:
        yield _failed(part, error)


def _fine(message: str) -> Finding:
    return Finding(Severity.FINE, message)


def _failed(part: str, error: GatewayError) -> Finding:
    return Finding(Severity.ERROR, f"{part}: {error.message}", error.hint)


def _source_findings(
    connection: psycopg.Connection, settings: Settings, definitions: Definitions | None
) -> Iterator[Finding]:
    facts = server_facts(connection)
    major = facts.version_num // 10000
    yield _fine(f"source: PostgreSQL {major}, database {facts.database}")
    for part, error in server_refusals(settings, connection, facts):
        yield _failed(part, error)
    yield from _server_findings(facts, settings)
    yield from _guarded("slot", lambda: _slot_findings(connection, settings, facts))
    if definitions is None:
        return
    unread: dict[str, FatalError] = {}
    yield from _guarded(
        "topics", lambda: _owner_findings(connection, settings, facts, definitions, unread)
    )
    plan = known_plan(settings, connection, definitions, facts)
    for warning in plan.warnings:
        yield Finding(Severity.WARNING, warning)
    for held in plan.held:
        yield Finding(
            Severity.ERROR if held.listed else Severity.WARNING,
            f"table {held.schema}.{held.table} of subscription {held.subscription} is held: "
            f"{held.reason}",
            "the other tables go on; this one is copied automatically once it can be published",
        )
    yield _fine(f"definitions: {len(plan.copies)} subscriber tables with an initial copy")
    yield from _guarded("kafka", lambda: _topic_findings(settings, facts, plan, unread))
    # Building the routes compiles every filter and every schema.
    routes = routes_of(connection, plan, facts, settings, CollectedSchemas())
    for row_filter, who in routes.filters.evaluations():
        yield _fine(f"{row_filter}: {who}")
    if routes.filters.ask_server and settings.filters.dsn is not None:
        with closing(make_evaluator(settings)) as evaluator:
            evaluator.open()
        yield _fine("row filters: the server of [filters] dsn answers as the source does")
    yield from _filter_findings(routes, settings)
    yield from _table_findings(plan)
    yield from _rights_findings(connection, plan, facts)
    yield from _alteration_findings(connection, definitions)
    if settings.filters.pushdown:
        yield from _push_down_findings(plan, definitions, facts)
    yield from _publication_findings(connection, settings, plan)


def _publication_findings(
    connection: psycopg.Connection, settings: Settings, plan: Plan
) -> Iterator[Finding]:
    """Yield the statements that are still to be run, and by whom."""
    missing = check_publications(connection, plan, prefix=settings.source.slot)
    refusals = list(plan_refusals(settings, connection, plan))
    yield from (_failed(part, error) for part, error in refusals)
    if not refusals:
        for line in missing:
            yield _fine(f"publication to be made: {line}")


def _filter_findings(routes: RelationRoutes, settings: Settings) -> Iterator[Finding]:
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
        yield _fine(f"{can_fail}: such rows go to topic {topic}, and replication continues")
    else:
        yield Finding(
            Severity.FINE,
            f"{can_fail}: the gateway stops there, as a native subscription does",
            'to go on without such a row: [on_error] filter = "quarantine"',
        )


def _server_findings(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    if settings.source.allow_untested and (problem := untested(facts)) is not None:
        yield Finding(Severity.WARNING, f"source: {problem.message}")
    if facts.max_slot_wal_keep_size == "-1":
        yield Finding(
            Severity.WARNING,
            "source: max_slot_wal_keep_size is not set: a gateway that is down for long fills "
            "the server's disk with WAL",
            "set it to what the disk can spare; a slot that lags by more is lost and the "
            "tables are copied again",
        )


def _slot_findings(
    connection: psycopg.Connection, settings: Settings, facts: ServerFacts
) -> Iterator[Finding]:
    status = slot_status(connection, settings.source.slot)
    yield from _prepared_findings(connection, status)
    if status is None:
        yield _fine(f"slot: {settings.source.slot} will be created at the first start")
        return
    check_slot(status, facts.database)
    yield _fine(f"slot: {settings.source.slot} exists, WAL {status.wal_status}")
    kept = None
    if status.restart_lsn is not None:
        kept = max(0, wal_flush_lsn(connection) - status.restart_lsn)
    near = retention_problem(status, kept)
    if near is not None:
        yield Finding(Severity.WARNING, f"slot: {near.message}", near.hint)


# Every database's: the slot keeps WAL from the first record of any of them.
_PREPARED: Final = """
SELECT gid, database::pg_catalog.text,
    pg_catalog.to_char(prepared, 'YYYY-MM-DD HH24:MI:SS TZ'), pg_catalog.count(*) OVER ()
FROM pg_catalog.pg_prepared_xacts ORDER BY prepared LIMIT 5
"""


def _prepared_findings(
    connection: psycopg.Connection, status: SlotStatus | None
) -> Iterator[Finding]:
    """Warn of prepared transactions, the oldest first: as long as they last, WAL is kept."""
    for gid, database, since, count in connection.execute(_PREPARED):
        if status is None:
            effect = "the slot cannot be created before it ends"
        elif status.two_phase and status.database == database:
            effect = "the slot is not confirmed beyond it, and keeps all WAL since"
        else:
            effect = "the slot keeps all WAL since it began"
        yield Finding(
            Severity.WARNING,
            f"slot: transaction {gid!r} of database {database} is prepared since {since} (one of "
            f"{count}): {effect}",
            "COMMIT PREPARED or ROLLBACK PREPARED it, unless its coordinator is about to",
        )


def _table_findings(plan: Plan) -> Iterator[Finding]:
    updated = {p.target_oid for p in plan.publishes if Operation.UPDATE in p.operations}
    filtered = {
        publish.target_oid for publish in plan.publishes if publish.filters.get(Operation.UPDATE)
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


def _rights_findings(
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


def _alteration_findings(
    connection: psycopg.Connection, definitions: Definitions
) -> Iterator[Finding]:
    """Yield the place from which an altered publication counts, and faults of event triggers."""
    installation = find_installation(connection)
    if installation is not None and installation.problems:
        yield Finding(
            Severity.ERROR,
            f"event triggers: {installation.problems[0]}"
            + (
                "; their messages are ignored, and other roles may gain rights by them"
                if installation.key is None
                else ""
            ),
            'run the script of "Altered publications" in docs/operations.md of this release as the '
            "superuser who owns them, or DROP SCHEMA pgsluice CASCADE",
        )
    elif installation is not None and not installation.may_read_key:
        yield Finding(
            Severity.WARNING,
            "event triggers: this role may not read their key, so their messages are ignored",
            "GRANT USAGE ON SCHEMA pgsluice TO the role of source.dsn; GRANT SELECT ON pgsluice.key"
            " TO the role of source.dsn",
        )
    if installation is not None and installation.readers:
        yield Finding(
            Severity.WARNING,
            "event triggers: other roles may read their key, and so write DDL messages that are "
            f"trusted: {', '.join(installation.readers)}",
            "right if they are of other gateways; else REVOKE SELECT ON pgsluice.key FROM them, "
            "from the roles that they are members of, or membership of pg_read_all_data",
        )
    defined = {publication.name for publication in definitions.publications}
    named = sorted({n for s in definitions.subscriptions for n in s.publications} - defined)
    if not named:
        return
    which = ", ".join(named)
    if installation is not None and installation.announces and installation.key is not None:
        yield _fine(f"publications {which}: an ALTER takes effect at its LSN")
    else:
        yield Finding(
            Severity.FINE,
            f"publications {which}: while the gateway lags, the latest definition also "
            "applies to earlier changes",
            "event triggers on the source make that exact (PostgreSQL 15 and later): see "
            '"Altered publications" in docs/operations.md',
        )


def _push_down_findings(
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
            yield _fine(f"push-down: not for table {table}: {found}")
            continue
        read = sorted(frozenset().union(*map(column_names, found)))
        yield Finding(
            Severity.WARNING,
            f"push-down: the server filters table {table} by {', '.join(read)}: every UPDATE and "
            "DELETE of it fails while its replica identity lacks one of these columns, and they "
            "cannot be dropped or given another type",
            "keep the identity as it is, or set [filters] pushdown = false",
        )


def _kafka_findings(settings: Settings) -> Iterator[Finding]:
    found = describe_topics(settings.kafka, [settings.topics.progress])
    made = "exists" if found else "does not exist yet"
    yield _fine(f"kafka: reached; topic {settings.topics.progress} {made}")


def _owner_findings(
    connection: psycopg.Connection,
    settings: Settings,
    facts: ServerFacts,
    definitions: Definitions,
    unread: dict[str, FatalError],
) -> Iterator[Finding]:
    """Yield the owners of the topics; those of another gateway are an error.

    `unread` receives the errors of topics whose owner cannot be determined.
    """
    names = [subscription.name for subscription in definitions.subscriptions]
    with Registry(settings.registry) as registry:
        refuse_foreign_topics(settings, connection, facts, registry, names, refused=unread)
    if not unread:
        yield _fine("topics: no other gateway writes to those of the subscriptions")


def _topic_findings(
    settings: Settings, facts: ServerFacts, plan: Plan, unread: Mapping[str, FatalError]
) -> Iterator[Finding]:
    """Yield the records that Kafka has lost, and the settings that let it lose records."""
    identity, progress = slot_identity(facts, settings), settings.topics.progress
    specs = table_topics(plan, settings)
    tables = [spec.name for spec in specs]
    markers = [transaction_topic(subscription.name) for subscription in plan.subscriptions]
    specs += shared_topics(plan, settings)
    examined = examine_topics(settings.kafka, specs, read=markers, unread=unread)
    found, unusable = dict(examined.found), examined.unusable
    for name, error in sorted(unusable.items()):
        then = "; its table is held" if name in tables else ""
        then = "; all tables of its subscription are held" if name in markers else then
        yield Finding(Severity.ERROR, f"kafka: {error.message}{then}", error.hint or "")
    if progress not in found:
        return
    recovered = read_progress(settings.kafka, progress, identity, settled=False)
    written = {t: o for t, o in recovered.offsets.items() if t in tables}
    there = {t: found[t].partitions for t in written if t in found}
    lost = lost_records(written, read_log_bounds(settings.kafka, there))
    lost |= {
        topic: "it does not exist any more"
        for topic in written
        if topic not in {**found, **unusable}
    }
    lost |= dict.fromkeys(other_topics(recovered.topic_ids, ids_of(examined.known)), MADE_AGAIN)
    changed = changed_partitions(there, {t: o for t, o in written.items() if t not in lost})
    for why in changed.values():
        yield Finding(
            Severity.ERROR,
            f"kafka: {why}",
            "its table is held until its copy is requested: `pgsluice copy TABLE`",
        )
    for topic, why in sorted(lost.items()):
        yield Finding(
            Severity.ERROR,
            f"kafka: topic {topic} has lost records: {why}",
            "its table is copied again at the next start"
            if settings.topics.on_lost_records == "copy"
            else "its table is held until its copy is requested: `pgsluice copy TABLE`",
        )
    others = [found.pop(progress)]
    for risk in risks(found.values(), others):
        severity = Severity.WARNING if risk.grave else Severity.FINE
        yield Finding(severity, f"kafka: {risk.message}", risk.hint)


def _registry_findings(settings: Settings) -> Iterator[Finding]:
    with Registry(settings.registry) as registry:
        registry.check()
    yield _fine("registry: reached")
