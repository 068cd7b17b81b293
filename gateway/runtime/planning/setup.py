"""Setup of an attempt before it touches the slot: the plan, topics, the producer.

Each function here depends on the configuration and the plan alone, so that commands which run
nothing (`check`, `schemas`, `slot drop`) see the same as the daemon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.background import OnWait, keep_waiting
from gateway.core.descriptors import wait_readable
from gateway.core.errors import DefinitionError, GatewayError, TransientError
from gateway.core.lsn import ZERO_LSN
from gateway.core.records import Batch
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.model import Definitions, Fault, Plan, TableId
from gateway.definitions.requests import released
from gateway.definitions.tables.renamed import kept_topics
from gateway.observe import event
from gateway.routing import RoutingSettings
from gateway.routing.build.known_schemas import registered_before
from gateway.runtime.planning.hidden_markers import (
    WhyHidden,
    errors_of,
    left_out,
    refuse_unreadable,
    waiting_for_uncopied,
)
from gateway.runtime.planning.ownership import refuse_foreign_topics
from gateway.runtime.planning.plan import read_definitions, read_plan, recalled_plan
from gateway.runtime.planning.preflight import plan_refusals, server_refusals
from gateway.runtime.planning.routes import relation_routes, routing_settings
from gateway.runtime.planning.table_checks import awaits_owner
from gateway.runtime.planning.topics import (
    TOPICS_TIMEOUT_S,
    AllHeldError,
    Topics,
    ensure_all_topics,
    refused_marker_schemas,
)
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress, read_progress
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.durability import Risk
from gateway.sink.topics.topics import describe_topics
from gateway.source.catalog.locked_tables import TableLockedError
from gateway.source.catalog.watch import whole_digest
from gateway.source.filters.evaluator import ServerEvaluator
from gateway.source.provisioning.trigger_installation import has_ddl_messages
from gateway.source.session.connection import ServerFacts, server_facts
from gateway.source.stream.options import Protocol, negotiate
from gateway.source.stream.slot import slot_status

__all__ = [
    "Setup",
    "commit_claim",
    "known_plan",
    "make_evaluator",
    "make_sink",
    "recall",
    "register",
    "set_up",
    "slot_identity",
    "warn_of_risks",
    "with_topics",
]

_LOG: Final = logging.getLogger(__name__)

_SHORTEST_PATIENCE_S: Final = 60.0
_MANY_TABLES: Final = 50
"""Number of tables from which on the registry takes longer than reading the progress once more."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Plan, topics and routing of a configuration on the servers, before anything is done.

    Attributes:
        catalog: Value of `gateway.source.catalog.watch.whole_digest` before the plan was read.
        reports_ddl: Whether the stream reports how publications of the database are altered.
        names: ``[topics] names`` as configured.
        risks: Ways in which Kafka could lose acknowledged records.
        topic_ids: Kafka's ID of each topic of a table or of markers.
        schemas: Fingerprint of all tables' schemas, which the registry has or had; empty if it
            refuses one.
        progress: Watermark of the slot in Kafka, if it was read on the way: for a first look.
        hidden: Subscriptions that are held because their markers cannot be read now, and why.
    """

    facts: ServerFacts
    definitions: Definitions
    plan: Plan
    routing: RoutingSettings
    protocol: Protocol
    batch_bytes: int | None
    catalog: str
    reports_ddl: bool
    names: Mapping[str, str]
    risks: tuple[Risk, ...]
    topic_ids: Mapping[str, str]
    schemas: str = ""
    progress: CommittedState | None = None
    hidden: Mapping[str, WhyHidden] = field(default_factory=dict)


def set_up(
    settings: Settings,
    connection: psycopg.Connection,
    registry: Registry,
    definitions: Definitions | None = None,
    faults: Mapping[TableId, Fault] = MappingProxyType({}),
    *,
    hidden: Mapping[str, WhyHidden] = MappingProxyType({}),
) -> Setup:
    """Read the definitions, make the plan, create or check the topics, and register the schemas.

    Args:
        settings: The configuration.
        connection: Connection to the source.
        registry: Registry for the schemas.
        definitions: Definitions in force, of a gateway that has streamed; None for those of the
            file. Changed ones are left to `gateway.runtime.reload.reloader`, which may refuse them.
        faults: Faults of tables that are to be held.
        hidden: As in `register`.

    Raises:
        ForeignTopics: those of a subscription are another gateway's; nothing was created.
        DefinitionError, ConfigError: the definitions or settings cannot work on these servers.
        FatalError: the server's wal_level is not logical, it is too new, or a topic is not as it
            must be.
        TransientError: a server does not answer.
    """
    definitions = definitions or read_definitions(settings)
    facts = server_facts(connection)
    for _, refusal in server_refusals(settings, connection, facts):
        raise refusal
    for subscription in definitions.subscriptions:
        if subscription.connection_given:
            event(
                _LOG,
                logging.INFO,
                "CONNECTION ignored: source.dsn is used",
                subscription=subscription.name,
            )
    catalog = whole_digest(connection, definitions)
    reports_ddl = has_ddl_messages(connection)
    first, watermark = _first_plan(settings, connection, definitions, facts)
    refused = dict(faults)
    while True:
        plan = first
        if plan is None or refused:
            plan = read_plan(settings, connection, definitions, watermark, faults=refused)
        known, progress = "", None
        if slot_status(connection, settings.source.slot) is None:
            for _, refusal in plan_refusals(settings, connection, plan):
                raise refusal
        elif len(plan.targets) >= _MANY_TABLES:
            progress = _read_progress(settings, facts)
            known = _known_schemas(plan, watermark, progress)
        topics, routing, schemas, more = register(
            settings, connection, plan, facts, registry, known=known, hidden=hidden
        )
        if not more:
            break
        refused |= more
    for warning in plan.warnings:
        event(_LOG, logging.WARNING, "definition", detail=warning)
    protocol = negotiate(plan.subscriptions, facts.version_num)
    names, size = settings.topics.names, topics.batch_bytes
    return Setup(
        facts,
        definitions,
        plan,
        routing,
        protocol,
        size,
        catalog,
        reports_ddl,
        names,
        topics.risks,
        topics.ids,
        schemas,
        progress,
        {name: why for name, why in hidden.items() if name in topics.muted},
    )


def _read_progress(settings: Settings, facts: ServerFacts) -> CommittedState | None:
    topic, identity = settings.topics.progress, slot_identity(facts, settings)
    if not describe_topics(settings.kafka, [topic]):
        return None
    # A gateway that was killed leaves its Kafka transaction open, until this one starts. The other
    # records may be large, and this is kept as long as the setup.
    found = read_progress(settings.kafka, topic, identity, settled=False)
    return CommittedState(found.watermark, {})


def _known_schemas(plan: Plan, watermark: Watermark | None, progress: CommittedState | None) -> str:
    """Return the fingerprint of schemas that are not waited for; empty if all are.

    Somebody else may have written it, or the registry may be another by now: it only says that
    their ids are asked for at a table's first row, not before.
    """
    if watermark is None and progress is not None:
        watermark = progress.watermark
    return "" if watermark is None else registered_before(plan, watermark)


def register(
    settings: Settings,
    connection: psycopg.Connection,
    plan: Plan,
    facts: ServerFacts,
    registry: Registry,
    *,
    known: str = "",
    hidden: Mapping[str, WhyHidden] = MappingProxyType({}),
) -> tuple[Topics, RoutingSettings, str, dict[TableId, Fault]]:
    """Create or check the topics, register the schemas and compile the filters of a plan.

    `known`: fingerprint of schemas that were all registered before, and are not waited for.
    `hidden`: subscriptions whose markers could not be read in time, and why; they are held, unless
    that would leave none, they are not copied, or tables are not held at all.

    Returns:
        The limits of the topics, the settings of routing, the fingerprint of the schemas, and the
        faults of tables that have to be held because their topic cannot be used or the registry
        refuses their schemas: the plan is to be made without them.

    Raises:
        ForeignTopics: those of a subscription are another gateway's; nothing was created.
        HiddenMarkersError: more markers cannot be read in time.
        ConfigError, FatalError: a topic cannot be had or is not as it must be.
        FilterError, SchemaError, SchemaRefusedError: a table cannot be published.
        TransientError: a server does not answer.
    """
    subscriptions = [subscription.name for subscription in plan.subscriptions]
    holds = settings.definitions.on_table_error == "hold"
    without = left_out(plan, hidden) if holds else frozenset()
    if len(without) == len(subscriptions):
        without = frozenset()
    left = [name for name in subscriptions if name not in without]
    failed_reads = errors_of(hidden, without)
    refused = failed_reads if holds else None
    with waiting_for_uncopied(plan):
        refuse_foreign_topics(settings, connection, facts, registry, left, refused=refused)
        refuse_unreadable(failed_reads, set(left) - left_out(plan, left))
    if holds:
        failed_reads |= refused_marker_schemas(registry, left_out(plan, left))
    try:
        topics = ensure_all_topics(
            settings, plan, timeout_s=TOPICS_TIMEOUT_S, holds=holds, failed_reads=failed_reads
        )
    except AllHeldError as error:
        if not without:
            raise error.first from None
        # Without them nothing is left to publish: they are waited for.
        return register(settings, connection, plan, facts, registry, known=known)
    routing = routing_settings(settings, facts, plan, topics)
    if topics.refused:
        return topics, routing, "", dict(topics.refused)
    routes = relation_routes(plan, routing, connection, registry)
    tables = routes.register_all(
        _holdable(settings, plan),
        request=registry.request,
        known=known,
        request_later=registry.request_later,
    )
    faults = {table_id: Fault(why, cause="schema") for table_id, why in tables.items()}
    return topics, routing, routes.schemas, faults


def _holdable(settings: Settings, plan: Plan) -> frozenset[TableId]:
    """Return the tables that are held when the registry refuses their schema.

    For one that the file names, `[on_error] schema` decides.
    """
    return plan.open_ended if settings.definitions.on_table_error == "hold" else frozenset()


def known_plan(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    facts: ServerFacts,
    *,
    readable: bool = False,
) -> Plan:
    """Read the plan; tables that were published already may be gone, or be held.

    `readable`: whether to plan as if the role could read all tables.

    Raises:
        DefinitionError: the definitions cannot be served.
        TransientError: a server does not answer.
    """
    plan, watermark = _first_plan(settings, connection, definitions, facts, readable=readable)
    return plan or read_plan(settings, connection, definitions, watermark, readable=readable)


def _first_plan(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    facts: ServerFacts,
    *,
    readable: bool = False,
) -> tuple[Plan | None, Watermark | None]:
    """Return the plan, or the watermark of this slot in Kafka, if the plan depends on it.

    It does if a table is held, or may be, until its owner has added it to the gateway's
    publications, or if the definitions are refused: the published tables decide then. It does with
    masks as well, since a table keeps them under another name. Reading takes time.

    Raises:
        DefinitionError: the definitions cannot be served.
        TransientError: a server does not answer.
    """
    refused: DefinitionError | None = None
    plan: Plan | None = None
    try:
        if not definitions.masks:
            plan = read_plan(settings, connection, definitions, readable=readable)
            if not plan.held and not awaits_owner(connection, plan, settings.source.slot):
                return plan, None
    except DefinitionError as error:
        refused = error
        # Logged now, since Kafka may be away for long.
        event(
            _LOG,
            logging.WARNING,
            "definitions do not fit the source now; reading in Kafka whether a gateway has served "
            "them before",
            # The whole text, with hints, follows if they did not.
            error=error.reason,
        )
    topic, identity = settings.topics.progress, slot_identity(facts, settings)
    watermark = None
    try:
        if describe_topics(settings.kafka, [topic]):
            recovered = read_progress(settings.kafka, topic, identity, succeeding=True)
            watermark = recovered.watermark
            if watermark is not None:
                known = released(watermark.copies, recovered.requests)
                watermark = replace(watermark, copies=known)
    except GatewayError:
        if plan is None or plan.held:
            raise
        return plan, None  # `check --sql` prints what its owner has to run, also without Kafka
    if isinstance(refused, TableLockedError) and watermark is None:
        raise TransientError(refused.message, hint=refused.hint)
    if refused is not None and watermark is None:
        raise refused
    return None, watermark


def recall(
    setup: Setup,
    settings: Settings,
    connection: psycopg.Connection,
    watermark: Watermark,
    *,
    was_down: bool,
) -> Setup:
    """Return `setup` with the dropped tables of which the stream may have rows.

    `was_down`: whether tables may have left a publication meanwhile, and have rows from before.

    Raises:
        TransientError: a server does not answer.
    """
    # A muted subscription has no topic for rows of such tables.
    muted = setup.routing.muted
    states = tuple(state for state in watermark.copies if state.subscription not in muted)
    plan = recalled_plan(
        connection,
        setup.definitions,
        setup.plan,
        replace(watermark, copies=states),
        was_down=was_down,
        reports_ddl=setup.reports_ddl,
    )
    if plan == setup.plan and settings.topics.names == setup.routing.topic_names:
        return setup
    topics = ensure_all_topics(settings, plan, timeout_s=TOPICS_TIMEOUT_S, muted=muted)
    routing = routing_settings(settings, setup.facts, plan, topics)
    return replace(
        setup, plan=plan, routing=routing, batch_bytes=topics.batch_bytes, topic_ids=topics.ids
    )


def with_topics(
    settings: Settings, plan: Plan, states: Iterable[CopyState], names: Mapping[str, str]
) -> Settings:
    """Return `settings` with the topics of renamed tables, if these are kept.

    `names`: ``[topics] names`` as configured.
    """
    if settings.topics.on_rename == "follow":
        return settings
    kept = kept_topics(plan, states, names)
    return replace(settings, topics=replace(settings.topics, names=kept))


def warn_of_risks(risks: Iterable[Risk], warned: Collection[str]) -> frozenset[str]:
    """Log in one line how Kafka could lose acknowledged records; return the logged risks.

    Nothing is logged if all are in `warned`. Minor risks are left to `check`.
    """
    grave = [risk for risk in risks if risk.grave]
    named = frozenset(risk.hint for risk in grave)
    if not named <= frozenset(warned):
        event(
            _LOG,
            logging.WARNING,
            "Kafka may lose records",
            detail="; ".join(risk.message for risk in grave),
            hint="; ".join(dict.fromkeys(risk.hint for risk in grave)),
        )
    return named


def commit_claim(sink: TransactionalSink, timeline: int, definitions: str) -> None:
    """Commit a watermark of 0: the slot that follows is ours, and nothing was streamed from it.

    Raises:
        TransientError: Kafka has not committed it.
        FatalError: Kafka refuses it.
    """
    sink.submit(Batch([], Watermark(ZERO_LSN, timeline, definitions, ())))
    while sink.busy:
        wait_readable([sink.fileno()], 1.0)
        sink.collect()


def make_evaluator(
    settings: Settings,
    *,
    on_wait: OnWait = keep_waiting,
    asked: Callable[[int], None] = lambda rows: None,
) -> ServerEvaluator:
    """Return an evaluator of row filters, not yet connected; `asked` as there."""
    source = settings.source.dsn
    return ServerEvaluator(
        settings.filters.dsn or source,
        timeout_s=settings.filters.timeout_s,
        source_dsn=source,
        on_wait=on_wait,
        asked=asked,
    )


def slot_identity(facts: ServerFacts, settings: Settings) -> SlotIdentity:
    """Return the identity under which Kafka has this gateway's watermark."""
    return SlotIdentity(facts.system_identifier, facts.database, settings.source.slot)


def make_sink(
    settings: Settings,
    facts: ServerFacts,
    registry: Registry,
    *,
    batch_bytes: int | None = None,
    on_away: Callable[[str], None] = lambda why: None,
) -> TransactionalSink:
    """Return the producer of this gateway's slot, not yet open.

    Args:
        settings: The configuration.
        facts: Facts of the source server.
        registry: Registry for the schemas of the watermark.
        batch_bytes: Largest size of a batch of records; None for the producer's default.
        on_away: As there.

    Raises:
        SchemaRefusedError, TransientError: the registry refuses its schemas, or cannot be reached.
    """
    identity = slot_identity(facts, settings)
    progress = KafkaProgress(settings.kafka, identity, registry, topic=settings.topics.progress)
    limit = {} if batch_bytes is None else {"batch.size": batch_bytes}
    # No other limit may end a long outage of Kafka: the stream goes on meanwhile, to disk.
    patience_s = max(_SHORTEST_PATIENCE_S, settings.limits.retry_for_s)
    return TransactionalSink(
        {**settings.kafka, **limit}, identity, progress, patience_s=patience_s, on_away=on_away
    )
