"""``pgsluice copy``: let the running gateway copy a table, or part of it, again.

The request is a record in Kafka beside the watermark. The gateway accepts it in the Kafka
transaction that commits the tables' new states, so neither can be lost.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import psycopg

from gateway.commands.asking import PROGRESS, READING, ask
from gateway.commands.consume import known_subscriptions
from gateway.commands.table_names import find_table
from gateway.config import Settings
from gateway.core.display import counted, said_if_slow, say
from gateway.core.errors import ConfigError, SlotError, TransientError
from gateway.core.watermark import CopyRequest, CopyState, Watermark
from gateway.definitions.changes import key_of_copy
from gateway.definitions.model import HeldTable, Plan, TableCopy
from gateway.definitions.requests import concerned, refusal
from gateway.monitor.remedies import remedy_of
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.setup import slot_identity
from gateway.runtime.reload.reloader import LOOK_FOR_REQUESTS
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.own_topics.requests import send_request
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import describe_topics
from gateway.source.filters.conditions import check_condition
from gateway.source.provisioning.privileges import why_unreadable
from gateway.source.session.connection import connect, server_facts

__all__ = ["copy"]

_HELD_S: Final = 20.0


def copy(
    settings: Settings,
    table: str | None,
    *,
    subscription: str | None = None,
    where: str = "",
    cancel: bool = False,
    wait: bool = True,
    timeout_s: float = 600.0,
) -> int:
    """Request a copy and wait until the rows are copied or, with `cancel`, the copy has ended.

    Args:
        settings: Settings of the gateway.
        table: ``TABLE`` or ``SCHEMA.TABLE``; None only with `cancel`: all.
        subscription: Name of a subscription; None for all that copy the table.
        where: Condition on the table's columns; empty for the whole table.
        cancel: Whether to cancel earlier requests.
        wait: Whether to wait for the copy, or only until the gateway has accepted the request.
        timeout_s: Timeout in seconds.

    Returns:
        The exit code: 0, or 1 if the table is held in some of the subscriptions.

    Raises:
        ConfigError: the table does not exist, or cannot be copied.
        SlotError: no gateway runs; the next one accepts the request.
        TransientError: not done within `timeout_s`; the gateway goes on.
    """
    if subscription is not None:
        known_subscriptions(settings, [subscription])
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        with said_if_slow(READING):
            identity = slot_identity(server_facts(connection), settings)
            topic = settings.topics.progress
            known: Watermark | None = None
            waiting: tuple[CopyRequest, ...] = ()
            if describe_topics(settings.kafka, [topic]):
                found = read_progress(settings.kafka, topic, identity)
                known, waiting = found.watermark, found.requests
            if known is None:
                raise ConfigError(
                    f'Kafka has no watermark of replication slot "{settings.source.slot}"',
                    key="source.slot",
                    hint="`pgsluice run` copies all tables when it starts for the first time",
                )
            if not (where or cancel):
                # A table that waits for this can be copied, as any other.
                states = tuple(replace(state, cause="") for state in known.copies)
                known = replace(known, copies=states)
            plan = read_plan(settings, connection, definitions, known)
            schema, name = (None, None) if table is None else _table(plan, known, table)
            request = CopyRequest(uuid.uuid4().hex, schema, name, subscription, where, cancel)
            chosen = _chosen(plan, known.copies, request, waiting, connection)
            if not chosen:
                say("nothing to cancel: no copy is requested, and none is being made")
                return 0
            registry = Registry(settings.registry)
            try:
                send_request(settings.kafka, topic, identity, registry, request)
            finally:
                registry.close()
        answer = _Answer(request, chosen, wait)
        ask(
            settings,
            connection,
            LOOK_FOR_REQUESTS,
            answer,
            timeout_s,
            waits_for="cancel the copies"
            if cancel
            else f"copy {counted(len({key[1:] for key in chosen}), 'table')}"
            if wait
            else "accept the request",
            absent=SlotError(
                f'no gateway reads replication slot "{settings.source.slot}"',
                hint="the request is kept: `pgsluice run` accepts it when it starts"
                + ("" if cancel else ", and `pgsluice copy --cancel` withdraws it"),
            ),
            late=TransientError(
                f"not done after {timeout_s:.0f} s", hint=f"the gateway goes on; {PROGRESS}"
            ),
        )
    say("cancelled" if cancel else "copied" if wait else f"copies requested; {PROGRESS}")
    left_out = [] if cancel else answer.left_out
    for held in left_out:
        say(
            f"not for subscription {held.subscription}, where the table is held: {held.reason}",
            to=sys.stderr,
        )
        hint = remedy_of(held.cause, (held.schema, held.table))
        say(f"hint: {hint}", to=sys.stderr)
    return 1 if left_out else 0


def _table(plan: Plan, known: Watermark, name: str) -> tuple[str, str]:
    """Return schema and table that `name` stands for."""
    found = {(state.schema, state.table) for state in known.copies}
    return find_table(
        name,
        found | {key_of_copy(plan, copy)[1:] for copy in plan.copies},
        absent="no subscription copies a table",
        hint="it must be published, and the subscription must not have copy_data = false; "
        "`pgsluice status` lists the tables",
    )


def _chosen(
    plan: Plan,
    states: Sequence[CopyState],
    request: CopyRequest,
    waiting: Sequence[CopyRequest],
    connection: psycopg.Connection,
) -> set[tuple[str, str, str]]:
    """Return subscription, schema and table of the request; none if there is nothing to cancel.

    Raises:
        ConfigError: the gateway would refuse it.
    """
    copies = {key_of_copy(plan, one): one for one in concerned(plan, request)}
    if not copies:
        raise _refused(plan, request)
    by_key = {(state.subscription, state.schema, state.table): state for state in states}
    requested: set[tuple[str, str, str]] = set()
    if request.cancel:
        requested = copies.keys() & _requested(plan, waiting)
        copies = {
            key: one
            for key, one in copies.items()
            if key in requested or not _is_idle(by_key.get(key))
        }
    reasons = []
    for place, one in copies.items():
        state = by_key.get(place)
        why = None if state is None or place in requested else refusal(plan, one, state, request)
        if why is not None:
            reasons.append(why)
    if not request.cancel:
        oids = {one.target_oid for one in copies.values()}
        for oid, fault in why_unreadable(connection, oids).items():
            raise ConfigError(
                f"table {plan.tables[oid]} cannot be copied: {fault.reason}",
                hint=f"let its owner or a superuser run: {fault.sql}",
            )
    if request.where:
        _check_where(plan, next(iter(copies.values())), request.where, connection)
    if reasons and not (request.cancel and len(reasons) < len(copies)):
        key = "--cancel" if request.cancel else "--where"
        raise ConfigError("; ".join(reasons), key=key)
    return set(copies)


def _is_idle(state: CopyState | None) -> bool:
    """Whether the table is neither copied nor to be copied."""
    return state is None or (state.state == "ready" and state.asked is None)


def _requested(plan: Plan, waiting: Sequence[CopyRequest]) -> set[tuple[str, str, str]]:
    """Return the tables whose copies are requested by what no gateway has accepted yet."""
    found: set[tuple[str, str, str]] = set()
    for request in waiting:
        keys = {key_of_copy(plan, one) for one in concerned(plan, request)}
        found = found - keys if request.cancel else found | keys
    return found


def _held(plan: Plan, request: CopyRequest) -> list[HeldTable]:
    """Return the subscriptions' tables of a request that cannot be published as they are."""
    return [
        held
        for held in plan.held
        if (held.schema, held.table) == (request.schema, request.table)
        and request.subscription in (None, held.subscription)
    ]


def _refused(plan: Plan, request: CopyRequest) -> ConfigError:
    name = f"{request.schema}.{request.table}"
    for held in _held(plan, request):
        return ConfigError(
            f"table {name} cannot be published as it is: {held.reason}",
            hint=remedy_of(held.cause, (held.schema, held.table)),
        )
    for schema, table, reason in plan.missing:
        if (schema, table) == (request.schema, request.table):
            return ConfigError(f"table {name} does not exist: {reason}")
    return ConfigError(f"subscription {request.subscription} does not copy table {name}")


def _check_where(plan: Plan, copy: TableCopy, where: str, connection: psycopg.Connection) -> None:
    why = check_condition(connection, plan.tables[copy.target_oid], where)
    if why is not None:
        raise ConfigError(f"{where!r} is not a valid row condition: {why}", key="--where")


class _Answer:
    """Whether a request is done, by what the gateway has committed."""

    def __init__(self, request: CopyRequest, chosen: set[tuple[str, str, str]], wait: bool) -> None:
        self._request = request
        self._chosen = chosen
        self._wait = wait
        self._held_since: float | None = None
        self.left_out: list[CopyState] = []
        """Tables of the request that are held for other subscriptions than those of `chosen`."""

    def __call__(self, found: CommittedState) -> bool:
        if found.watermark is None or self._request in found.requests:
            return False
        # The gateway's own: what the plan of this command holds may be a lock that has gone since.
        self.left_out = [
            state
            for state in found.watermark.copies
            if (state.schema, state.table) == (self._request.schema, self._request.table)
            and self._request.subscription in (None, state.subscription)
            and (state.subscription, state.schema, state.table) not in self._chosen
            and state.state == "held"
        ]
        if not self._wait or self._request.cancel:
            return True
        states = [
            state
            for state in found.watermark.copies
            if (state.subscription, state.schema, state.table) in self._chosen
        ]
        held = [state for state in states if state.state in ("held", "missing")]
        if not held:
            self._held_since = None
            return all(state.is_settled for state in states)
        # A starting gateway may have read the catalog before the cause was repaired.
        now = time.monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since > _HELD_S:
            state = held[0]
            raise ConfigError(
                f"table {state.schema}.{state.table} of subscription {state.subscription} is "
                f"{state.state}: {state.reason}",
            )
        return False
