"""Changes that come into force at one position: definitions, and tables to copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import psycopg

from gateway.core.descriptors import wait_readable
from gateway.core.errors import TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.records import Batch, Cut, Record
from gateway.core.watermark import CopyRequest, CopyState, StatePart, StatePartKind, Watermark
from gateway.definitions import requests
from gateway.definitions.changes import copy_states, ended_states
from gateway.definitions.model import Plan
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy, encode_reload
from gateway.observe import event
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.runtime.ports import Sink
from gateway.source.catalog.partitions import partition_conditions
from gateway.source.provisioning.privileges import why_unreadable

__all__ = ["accept_requests", "begin", "commit_states", "put_into_force"]

_LOG: Final = logging.getLogger(__name__)


def begin(
    plan: Plan,
    watermark: Watermark,
    routes: RelationRoutes,
    sink: Sink,
    stopping: Callable[[], bool],
    parts: Mapping[StatePartKind, Iterable[str]] = MappingProxyType({}),
) -> Watermark:
    """Commit the first watermark of a new slot: all tables of `plan` are pending.

    COPY markers say so before any PROGRESS has a position: a consumer's tables are incomplete
    then, however far the stream is. `parts`: kinds and names of parts of the state of an earlier
    slot, which are removed.

    Raises:
        TransientError: an edge failed, or `stopping` is true.
    """
    names = routes.settings.topic_names
    first = replace(watermark, copies=copy_states(plan, (), reconcile=True, names=names))
    _log_held((), first.copies)
    records = _pending(first, routes)
    everyone = [subscription.name for subscription in plan.subscriptions]
    cut = Cut(first.end_lsn, first.timeline, routes.addresses.feeds, None, everyone)
    removed = [StatePart(kind, name, None) for kind, names in parts.items() for name in names]
    _commit(sink, Batch(records, first, cut, parts=tuple(removed)), stopping)
    fail_point("copy.begun")
    return first


def put_into_force(
    plan: Plan,
    definitions: str,
    watermark: Watermark,
    routes: RelationRoutes,
    sink: Sink,
    *,
    reconcile: bool,
    stopping: Callable[[], bool],
    published: Mapping[str, Lsn] = MappingProxyType({}),
) -> Watermark:
    """Put `plan` into force at the watermark: commit markers and the states of all tables.

    Args:
        plan: The new plan.
        definitions: Fingerprint of the definitions.
        watermark: Watermark that Kafka has committed under the definitions before.
        routes: Routes of `plan`.
        sink: A sink that is not busy.
        reconcile: See `copy_states`.
        stopping: Called while waiting; True abandons the commit.
        published: Position up to which another gateway has published, by subscription. The changes
            of its tables up to there are not published once more.

    Returns:
        The watermark that is committed now.

    Raises:
        TransientError: an edge failed, or `stopping` is true: the old definitions stay in force.
    """
    point, names = watermark.end_lsn, routes.settings.topic_names
    states = copy_states(plan, watermark.copies, reconcile=reconcile, names=names)
    after = replace(
        watermark,
        definitions=definitions,
        copies=tuple(_at(state, point, published) for state in states),
        refusal=None,
    )
    maker = HeaderMaker(point, None, None, None)
    value, headers = encode_reload(point, definitions), maker.make(point, 0, b"RELOAD")
    subscriptions = [feed.subscription for feed in routes.addresses.feeds]
    records = [routes.addresses.marker(name, value, headers) for name in subscriptions]
    pending = _pending(after, routes)
    records += pending
    headers = maker.make(point, 0, b"COPY")
    for state in ended_states(watermark.copies, states):
        if state.subscription in subscriptions:
            marker = encode_copy(replace(state, consistent_point=point))
            records.append(routes.addresses.marker(state.subscription, marker, headers))
        event(
            _LOG,
            logging.WARNING,
            "a table is not published any more",
            subscription=state.subscription,
            relation=f"{state.schema}.{state.table}",
            state=state.state,
            because=state.reason or "it is not in the publications under this name",
        )
    _log_held(watermark.copies, states)
    cut = Cut(point, after.timeline, routes.addresses.feeds, None, subscriptions)
    _commit(sink, Batch(records, after, cut), stopping)
    fail_point("copy.announced")
    event(
        _LOG,
        logging.INFO,
        "definitions in force",
        lsn=format_lsn(point),
        subscriptions=len(plan.subscriptions),
        tables_to_copy=len(pending),
    )
    return after


def _at(state: CopyState, point: Lsn, published: Mapping[str, Lsn]) -> CopyState:
    """Return a state with the position that it has when definitions come into force at `point`."""
    if state.state == "held" and state.consistent_point is None:
        return replace(state, consistent_point=point)
    if state.state == "pending" and state.subscription in published:
        return replace(state, consistent_point=published[state.subscription])
    return state


def commit_states(
    watermark: Watermark,
    sink: Sink,
    stopping: Callable[[], bool],
    parts: tuple[StatePart, ...] = (),
) -> None:
    """Commit what is known of the tables, and `parts`, at the position that Kafka has.

    Raises:
        TransientError: an edge failed, or `stopping` is true.
    """
    _commit(sink, Batch([], watermark, parts=parts), stopping)


def _log_held(before: Iterable[CopyState], states: Iterable[CopyState]) -> None:
    """Log the tables that were never published and are held from now on."""
    known = {(state.subscription, state.schema, state.table) for state in before}
    for state in states:
        key = (state.subscription, state.schema, state.table)
        if state.state == "held" and key not in known:
            event(
                _LOG,
                logging.WARNING,
                "a table is held",
                subscription=state.subscription,
                relation=f"{state.schema}.{state.table}",
                because=state.reason,
            )


def accept_requests(
    plan: Plan,
    watermark: Watermark,
    asked: tuple[CopyRequest, ...],
    connection: psycopg.Connection,
    sink: Sink,
    *,
    unfit: Mapping[str, str],
    stopping: Callable[[], bool],
) -> Watermark:
    """Accept requests for copies, and copy the rows of new partitions, if there are any.

    The states are committed in one Kafka transaction with the end of the requests.

    Args:
        plan: The plan in force.
        watermark: The committed watermark.
        asked: Requests in the order in which they came.
        connection: Connection to the source server.
        sink: A sink that is not busy.
        unfit: Reason, by the name of a request, for which its condition cannot be used.
        stopping: Called while waiting; True abandons the commit.

    Returns:
        The watermark that is committed now.

    Raises:
        TransientError: an edge failed, or `stopping` is true: the requests stay.
    """
    attached = requests.new_partitions(plan, watermark.copies)
    if not (asked or attached):
        return watermark
    conditions = partition_conditions(connection, frozenset[int]().union(*attached.values()))
    unreadable = why_unreadable(connection, requests.oids_of(plan, asked))
    states, refused = requests.apply_requests(
        plan, watermark.copies, asked, conditions, unreadable, unfit
    )
    after = replace(watermark, copies=states)
    _commit(sink, Batch([], after, done_requests=asked), stopping)
    for because in refused:
        event(_LOG, logging.WARNING, "copy request refused", because=because)
    event(
        _LOG,
        logging.INFO,
        "copy requests accepted",
        requests=len(asked),
        new_partitions=len(conditions),
    )
    return after


def _pending(watermark: Watermark, routes: RelationRoutes) -> list[Record]:
    """Return the COPY markers of tables that are to be copied."""
    point = watermark.end_lsn
    headers = HeaderMaker(point, None, None, None).make(point, 0, b"COPY")
    return [
        routes.addresses.marker(
            state.subscription, encode_copy(replace(state, consistent_point=point)), headers
        )
        for state in watermark.copies
        if state.state == "pending"
    ]


def _commit(sink: Sink, batch: Batch, stopping: Callable[[], bool]) -> None:
    sink.submit(batch)
    while sink.collect() is None:
        if stopping():
            raise TransientError("stopped while a position was committed")
        wait_readable([sink.fileno()], 0.5)
