"""Checks of single tables of a plan, beyond those of PostgreSQL's own rules.

FOR ALL TABLES includes whatever any role creates, so that a fault of one table must be known before
something is done for all: its topic's name, its schema, its filter, and the gateway's rights on it.
A table with a fault is held; faults that concern every table are left to the caller that meets
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import FilterError, SchemaError
from gateway.core.identifiers import one_line, quote_identifier
from gateway.core.names import error_topic, message_topic, transaction_topic
from gateway.core.watermark import CopyState
from gateway.definitions.model import Column, Fault, Plan, Publish, Table, TableId
from gateway.definitions.moving import inner_oids
from gateway.definitions.server import SUFFIXES
from gateway.definitions.tables.keys import chosen_fault, identifies, key_of
from gateway.definitions.tables.remembered import oversized
from gateway.definitions.tables.topic_names import topic_name_faults
from gateway.envelope.schema import describe
from gateway.routing.row.binary_rows import compile_row
from gateway.rowfilter import FilterSource, compile_filter, place_filter
from gateway.sink.delivery.record_limits import record_bytes
from gateway.source.catalog.catalog import ServerCatalog
from gateway.source.provisioning.privileges import own_publications, why_unreadable
from gateway.source.provisioning.publication_state import read_member_oids
from gateway.source.session.blockers import lock_holders
from gateway.source.stream.options import wants_binary
from schemas.settings.tables import Envelope, TypesTable

__all__ = ["adding", "awaits_owner", "find_faults", "key_faults", "reserved_topics"]

_NO_KEY: Final = (
    "it has no key, and [envelope] gives this subscription no `t` records: a second copy would add"
    " its rows once more"
)
_NO_TRUNCATES: Final = (
    "its filter reads other tables, and [envelope] gives this subscription no `t` records: rows "
    "that have left would stay in its consumers when the table is copied again"
)
_SHARED_KEY: Final = (
    "several rows can have the key of [topics.keys], and [envelope] gives this subscription no `t`"
    " records: a consumer would take them for one row"
)
_LOCKED_S: Final = 5
"""Seconds for which ALTER PUBLICATION waits for a lock."""


def find_faults(
    settings: Settings,
    connection: psycopg.Connection,
    plan: Plan,
    states: Iterable[CopyState],
    *,
    rights: bool,
    readable: bool = False,
) -> dict[TableId, Fault]:
    """Return the faults of tables of `plan` that cannot be published, by subscription and OID.

    Args:
        settings: The configuration.
        connection: Connection to the source.
        plan: Plan of the definitions and the catalog.
        states: Committed states of all tables.
        rights: Whether to check those of the role as well, before a copy.
        readable: Whether to take all tables for readable by the role.

    Raises:
        TransientError: the connection is gone.
    """
    known = tuple(states)
    faults: dict[TableId, Fault] = {}
    if rights:
        faults |= _not_ours(connection, plan, known, settings.source.slot)
        for table_id, why in {} if readable else _unreadable(connection, plan, known).items():
            # A table can lack both rights: its owner is asked for all at once.
            faults[table_id] = _joined([faults[table_id], why] if table_id in faults else [why])
    faults |= {table_id: Fault(why) for table_id, why in _shape_faults(settings, connection, plan)}
    faults |= topic_name_faults(plan, known, settings.topics.names, reserved_topics(settings, plan))
    faults |= {**dict(_oversized(settings, plan)), **dict(_until_asked(settings, known))}
    return faults | key_faults(settings, plan)


def key_faults(settings: Settings, plan: Plan) -> dict[TableId, Fault]:
    """Return the faults of tables that cannot have the key or the partitions of the settings.

    Those without a ``t`` need a key that identifies a row, if they have one of the settings or are
    copied.
    """
    return {
        **_keyless_faults(settings, plan),
        **dict(_chosen_faults(settings, plan)),
        **dict(_moving_faults(settings, plan)),
    }


def _moving_faults(settings: Settings, plan: Plan) -> Iterator[tuple[TableId, Fault]]:
    """Yield tables with filters over other tables whose consumers would keep rows that left."""
    for copy in plan.copies:
        if not settings.envelope.of(copy.subscription).truncates and inner_oids(copy.filters):
            yield (copy.subscription, copy.target_oid), Fault(_NO_TRUNCATES, always=True)


def _chosen_faults(settings: Settings, plan: Plan) -> Iterator[tuple[TableId, Fault]]:
    for publish in plan.publishes:
        table, relation = plan.tables[publish.target_oid], plan.tables[publish.relation_oid]
        chosen = settings.topics.chosen(str(table))
        if not (chosen.key or chosen.partition):
            continue
        fault = chosen_fault(
            chosen,
            {c.name for c in table.columns if publish.publishes(c)},
            publish.operations,
            relation.replica_identity,
            relation.identity,
        )
        if fault is not None:
            yield (publish.subscription, publish.target_oid), fault


def _keyless_faults(settings: Settings, plan: Plan) -> dict[TableId, Fault]:
    copied = {subscription.name for subscription in plan.subscriptions if subscription.copy_data}
    return {
        (publish.subscription, publish.target_oid): fault
        for publish in plan.publishes
        if not settings.envelope.of(publish.subscription).truncates
        and (fault := _why_no_upsert(settings, plan, publish, copied))
    }


def _why_no_upsert(
    settings: Settings, plan: Plan, publish: Publish, copied: Collection[str]
) -> Fault | None:
    table = plan.tables[publish.target_oid]
    key = key_of(table, {c.name for c in table.columns if publish.publishes(c)})
    chosen = settings.topics.chosen(str(table))
    if not key and publish.subscription in copied:
        return Fault(_NO_KEY, always=True, cause="no_key")
    if chosen.key and not identifies(key, chosen):
        return Fault(_SHARED_KEY, always=True, cause="keys")
    return None


def reserved_topics(settings: Settings, plan: Plan) -> list[str]:
    """Return the topics that belong to no table."""
    gateway = settings.gateway.name
    return [
        *(transaction_topic(subscription.name) for subscription in plan.subscriptions),
        message_topic(gateway),
        error_topic(gateway),
        settings.topics.progress,
    ]


def _shape_faults(
    settings: Settings, connection: psycopg.Connection, plan: Plan
) -> Iterator[tuple[TableId, str]]:
    catalog = ServerCatalog(connection) if wants_binary(plan.subscriptions) else None
    server = settings.filters.server == "on"
    for publish in plan.publishes:
        table_id = (publish.subscription, publish.target_oid)
        table = plan.tables[publish.target_oid]
        columns = tuple(c.name for c in table.columns if publish.publishes(c))
        why = _why_no_schema(
            table, columns, settings.types, settings.envelope.of(publish.subscription)
        )
        if table_id in plan.open_ended:
            clauses = {clause for found in publish.filters.values() for clause in found}
            for clause in sorted(clauses, key=lambda c: c.text):
                tested = plan.tables[clause.table_oid]
                why = why or _why_no_filter(
                    clause.text, clause.publication, str(tested), tested.columns, server
                )
        if why is None and catalog is not None:
            relation = plan.tables[publish.relation_oid]
            sent = [(c.name, c.type_oid) for c in relation.columns if c.generated != "v"]
            try:
                compile_row(str(relation), sent, columns, catalog.type_info)
            except SchemaError as error:
                why = error.message
        if why is not None:
            yield table_id, why


def _until_asked(
    settings: Settings, states: Iterable[CopyState]
) -> Iterator[tuple[TableId, Fault]]:
    """Yield tables that are held until their copy is requested, or they get another topic."""
    copied = "lost" if settings.topics.on_lost_records == "copy" else ""
    for state in states:
        if not state.waits_for_request or state.cause == copied:
            continue
        name = f"{state.subscription}.{state.schema}.{state.table}"
        if settings.topics.names.get(name, state.topic) == state.topic:
            fault = Fault(state.reason, always=True, cause=state.cause)
            yield (state.subscription, state.oid), fault


def _oversized(settings: Settings, plan: Plan) -> Iterator[tuple[TableId, Fault]]:
    """Yield tables whose definition does not fit into a record of the progress topic."""
    most_bytes = record_bytes(settings.kafka) // 2
    for table_id, size in oversized(plan, most_bytes).items():
        yield (
            table_id,
            Fault(
                f"its filters, columns and partitions are {size} bytes of text, more than the "
                f"{most_bytes} that topic {settings.topics.progress} takes",
                always=True,
                cause="size",
            ),
        )


@lru_cache(maxsize=8192)
def _why_no_schema(
    table: Table, columns: tuple[str, ...], types: TypesTable, envelope: Envelope
) -> str | None:
    by_name = {column.name: column for column in table.columns}
    published = [by_name[name] for name in columns]
    try:
        describe(
            table.schema,
            table.name,
            published,
            key_of(table, columns),
            types=types,
            envelope=envelope,
        )
    except SchemaError as error:
        return error.message
    return None


@lru_cache(maxsize=8192)
def _why_no_filter(
    text: str, publication: str, table: str, columns: tuple[Column, ...], server: bool
) -> str | None:
    understand = place_filter if server else compile_filter
    try:
        understand(text, columns, source=FilterSource(table, publication))
    except FilterError as error:
        return error.message.partition("\n")[0]
    return None


def _unreadable(
    connection: psycopg.Connection, plan: Plan, states: tuple[CopyState, ...]
) -> dict[TableId, Fault]:
    """Return tables that are still to be copied and may not be read."""
    ready = {(state.subscription, state.oid) for state in states if state.state == "ready"}
    to_copy = {(copy.subscription, copy.target_oid) for copy in plan.copies} - ready
    read = {table_id: {table_id[1]} for table_id in to_copy}
    for copy in plan.copies:
        if (found := read.get((copy.subscription, copy.target_oid))) is not None:
            found |= inner_oids(copy.filters)
    why = why_unreadable(connection, set[int]().union(*read.values()))
    return {
        table_id: _joined([why[oid] for oid in sorted(faulty)])
        for table_id, oids in read.items()
        if (faulty := oids & why.keys())
    }


def _joined(faults: Sequence[Fault]) -> Fault:
    if len(faults) == 1:
        return faults[0]
    return Fault(
        "; ".join(fault.reason for fault in faults),
        tuple(dict.fromkeys(sql for fault in faults for sql in fault.statements)),
        tuple(dict.fromkeys(sql for fault in faults for sql in fault.by_hand)),
        always=True,
        cause=next((fault for fault in faults if fault.statements), faults[0]).cause,
    )


def awaits_owner(connection: psycopg.Connection, plan: Plan, prefix: str) -> bool:
    """Whether the gateway's publications exist, and lack tables that the role may not add.

    Raises:
        TransientError: the connection is gone.
    """
    names = [prefix + suffix for suffix in SUFFIXES]
    if not (new := _new_members(connection, plan, names)):
        return False
    own = own_publications(connection, names, new)
    return len(own.existing) == len(names) and bool(
        own.foreign or not own.unowned.isdisjoint(new.values())
    )


def _new_members(
    connection: psycopg.Connection, plan: Plan, names: Sequence[str]
) -> dict[int, str]:
    """Return the tables that are to be added, and the names of the publications."""
    members = read_member_oids(connection, names)
    return {
        oid: publication.name
        for publication in plan.server_publications
        for oid in publication.table_oids
        if oid not in members.get(publication.name, ())
    }


def _not_ours(
    connection: psycopg.Connection, plan: Plan, states: Iterable[CopyState], prefix: str
) -> dict[TableId, Fault]:
    """Return tables that cannot be added to the gateway's own publications now.

    The role has no right to it, or another session holds a lock on one for long. A table that the
    file names is returned only if it is held by now: others go on without it.

    Nothing is returned if the publications themselves neither exist nor can be created, or if no
    table would be left: then the rights concern every table, and the start names them.
    """
    names = [prefix + suffix for suffix in SUFFIXES]
    new = _new_members(connection, plan, names)
    if not new:
        return {}
    own = own_publications(connection, names, new)
    if len(own.existing) < len(names) and not own.may_create:
        return {}
    targets = _targets_by_member(plan)
    faults: dict[TableId, Fault] = {}
    for oid, why in _locked(connection, new).items():
        fault = Fault(why, cause="lock")
        faults |= dict.fromkeys(targets[oid] & plan.open_ended, fault)
    for oid, name in new.items():
        table = plan.tables[oid]
        statement = adding(name, table)
        if oid in own.foreign:
            reason = f"must be owner of table {table}"
        elif name in own.unowned:
            reason = f"must be owner of publication {name}"
        else:
            continue
        for table_id in targets[oid]:
            faults[table_id] = Fault(reason, (statement,), cause="publication")
    if not own.existing and plan.targets <= faults.keys():
        return {}
    held = {(state.subscription, state.oid) for state in states if state.state == "held"}
    return {id_: why for id_, why in faults.items() if id_ in plan.open_ended or id_ in held}


def adding(publication: str, table: Table) -> str:
    """Return the statement, in one line, by which its owner adds a table to a publication."""
    return one_line(f"ALTER PUBLICATION {quote_identifier(publication)} ADD TABLE ONLY {table.sql}")


def _locked(connection: psycopg.Connection, oids: Collection[int]) -> dict[int, str]:
    """Return tables on which others hold a lock for longer than a statement would wait."""
    if lock_holders(connection, oids, vacuum=False) is None:
        return {}
    found = {oid: lock_holders(connection, [oid], vacuum=False) for oid in sorted(oids)}
    return {
        oid: f"a lock on it is held by {wait}"
        for oid, wait in found.items()
        if wait is not None and (wait.age_s is None or wait.age_s >= _LOCKED_S)
    }


def _targets_by_member(plan: Plan) -> Mapping[int, set[TableId]]:
    """Return the tables that each member of the gateway's own publications publishes."""
    found: dict[int, set[TableId]] = defaultdict(set)
    for publish in plan.publishes:
        table_id = (publish.subscription, publish.target_oid)
        for oid in (publish.relation_oid, *plan.tables[publish.relation_oid].ancestors):
            found[oid].add(table_id)
    for subscription, oid in plan.targets:
        found[oid].add((subscription, oid))
    for copy in plan.copies:
        for inner in inner_oids(copy.filters):
            for oid in (inner, *plan.tables[inner].leaves):
                found[oid].add((copy.subscription, copy.target_oid))
    return found
