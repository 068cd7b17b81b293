"""Reload: changed definitions are noticed, checked, and put into force at one LSN.

It has a thread and a connection of its own, so that the loop never waits for it. SIGHUP or
`pgsluice reload` (a NOTIFY on the source server) requests a reload; the catalog is read at
intervals as well. `pgsluice copy` requests in the same way that the copy requests in Kafka are
read. Changed definitions come into force in these steps:

    1. read the definitions, make the plan, build all routes: what would be refused at a start is
       refused here, and the old definitions stay in force
    2. create topics, and add the tables to the gateway's publications that the new plan needs
    3. hold the loop, and choose the present end of the WAL as the LSN
    4. let the loop go on until that LSN, where it ends with `Outcome.REACHED_SWITCH`

The daemon then puts the definitions into force (`gateway.runtime.lifecycle.activation`) and starts
again; new tables are copied while the stream goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, Self

import psycopg
from psycopg import sql

from gateway.config import Settings
from gateway.copy import Snapshot
from gateway.core.errors import FatalError, GatewayError, HiddenMarkersError, TransientError
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyRequest, CopyState, Watermark
from gateway.definitions.changes import copy_states
from gateway.definitions.model import Definitions, Fault, Plan
from gateway.observe import Counters, event
from gateway.routing import RoutingSettings
from gateway.runtime.planning.hidden_markers import WhyHidden, left_out, reasons_of, still_hidden
from gateway.runtime.planning.ownership import claim_topics
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.setup import Setup, register, slot_identity, with_topics
from gateway.runtime.planning.topics import muted_subscriptions
from gateway.runtime.planning.untrusted_texts import refused_requests
from gateway.runtime.reload.differences import added_subscriptions, has_new_copies, plans_differ
from gateway.runtime.reload.held_retries import HeldLooks
from gateway.runtime.reload.missed_changes import report_missed
from gateway.runtime.reload.partition_retries import PartitionRetries
from gateway.runtime.reload.refusals import Refusals
from gateway.sink.own_topics.owners import Owner
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.registry.registry import Registry
from gateway.source.catalog.shapes import ShapeWatch
from gateway.source.catalog.watch import CatalogWatch
from gateway.source.provisioning.lost_members import MembersWatch
from gateway.source.provisioning.own_publications import extend_publications
from gateway.source.provisioning.trigger_installation import has_ddl_messages
from gateway.source.session.blockers import session_name
from gateway.source.session.connection import (
    connect,
    server_facts,
    wal_flush_lsn,
)
from gateway.source.session.search_path import forget_schemas
from gateway.source.session.visibility import read_snapshot

__all__ = ["LOOK_FOR_REQUESTS", "PreparedDefinitions", "Reloader", "channel_of"]

_LOG: Final = logging.getLogger(__name__)
_LISTEN_S: Final = 0.1
_ALIVE_S: Final = 30.0
_RETRY_S: Final = 5.0
_LONGEST_RETRY_S: Final = 60.0
_JOIN_S: Final = 5.0
LOOK_FOR_REQUESTS: Final = "copy"
"""Payload of a NOTIFY that only asks to read the requests in Kafka."""


def channel_of(slot: str) -> str:
    """Return the channel of NOTIFY by which a slot's gateway is asked to reload."""
    return f"pgsluice_{slot}"


@dataclass(frozen=True, slots=True)
class PreparedDefinitions:
    """Definitions that can come into force at `point`.

    Attributes:
        reconcile: Whether tables that exist under other definitions are copied.
        snapshot: Snapshot from before the catalog was read.
        taken: Subscriptions that were taken from another gateway.
        hidden: Subscriptions that are left out because their markers cannot be read, and why.
    """

    definitions: Definitions
    plan: Plan
    routing: RoutingSettings
    reconcile: bool
    point: Lsn
    snapshot: Snapshot
    taken: frozenset[str]
    hidden: Mapping[str, WhyHidden]


class _Ended(Exception):
    """Raised in the thread when the loop has ended."""


class Reloader:
    """A `gateway.runtime.ports.Switch`, whose thread runs within its `with` block.

    Args:
        watermark: Watermark in force, with the states of all copies.
        setup: Setup in force.
        counters: Counters that show refused definitions.
        stream_plan: Returns the plan according to DDL messages; the next look corrects errors in
            it.
        copies: Returns the current states of all copies.
        requested: Called often; returns True once after a request to read the definitions.
        held_looks: Schedule of retries of held tables.
        members: Watch of the gateway's own publications, which lasts as long as the process.
        accepted: Names of accepted requests, which may still be in Kafka.

    Attributes:
        requests: Requests for copies; the loop ends for them.
        unfit: Reason, by the name of a request, for which its condition cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        watermark: Watermark,
        setup: Setup,
        *,
        counters: Counters,
        stream_plan: Callable[[], Plan | None],
        copies: Callable[[], Sequence[CopyState]],
        requested: Callable[[], bool],
        held_looks: HeldLooks,
        members: MembersWatch,
        accepted: Collection[str] = (),
    ) -> None:
        self._settings = settings
        self._watermark = watermark
        self._setup = setup
        self._plan = setup.plan
        self._requested = requested
        self._catalog = CatalogWatch(setup.definitions, setup.catalog)
        self._shapes = ShapeWatch()
        self._members = members
        self._coming: Plan | None = None  # for which the publications may have been altered
        self._stream_plan = stream_plan
        self._compared: Plan | None = None
        self._copies = copies
        self._pending = bool(members.lost)
        self._ended = threading.Event()
        self._hold = False
        self._held = threading.Event()
        self._prepared: PreparedDefinitions | None = None
        self._ends_loop = False  # definitions are prepared, or copies requested
        self._has_to_hold = False  # tables, although the definitions are refused
        self._failure: Exception | None = None
        # More may have come after the accepted ones, with a NOTIFY that was not received.
        self._look_for_requests = bool(accepted)
        self._accepted = accepted
        self.requests: tuple[CopyRequest, ...] = ()
        self._counters = counters
        self._refusals = Refusals(counters)
        self._checked = ""  # fingerprint of the definitions that are being checked
        self.unfit: Mapping[str, str] = {}
        self._held_looks = held_looks
        self._retries_hidden = False  # subscriptions that were left out, once more
        self._retry_s = _RETRY_S
        self._partitions = PartitionRetries(setup.plan)
        self._thread = threading.Thread(target=self._run, name="pgsluice reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    # Called by the loop

    def holds(self) -> bool:
        """See `gateway.runtime.ports.Switch`.

        Raises:
            Exception: the failure of the thread.
        """
        if self._failure is not None:
            raise self._failure
        return self._hold

    def confirm_hold(self) -> None:
        """See `gateway.runtime.ports.Switch`."""
        self._held.set()

    def point(self) -> Lsn | None:
        """See `gateway.runtime.ports.Switch`."""
        return None if self._prepared is None else self._prepared.point

    def prepared(self) -> PreparedDefinitions:
        """Return the definitions that come into force at `point`."""
        assert self._prepared is not None
        return self._prepared

    def is_asked_to_copy(self) -> bool:
        """Whether the loop has to end, so that requests are accepted, or tables held."""
        return bool(self.requests) or self._has_to_hold

    # The thread

    def _run(self) -> None:
        while not self._ended.is_set() and not self._ends_loop:
            try:
                with connect(
                    self._settings.source.dsn,
                    application_name=session_name("reload", self._settings.source.slot),
                    on_wait=self._go_on,
                ) as c:
                    self._watch(c)
            except _Ended:
                break
            except (GatewayError, psycopg.Error) as error:
                message = error.message if isinstance(error, GatewayError) else "connection lost"
                event(_LOG, logging.WARNING, "definitions are not watched", error=message)
                self._ended.wait(_RETRY_S)
            except Exception as error:  # handed to the loop, which raises it
                self._failure = error
                break

    def _watch(self, connection: psycopg.Connection) -> None:
        # A standby has no NOTIFY: requests are found at the next look.
        is_deaf = server_facts(connection).in_recovery
        if not is_deaf:
            name = sql.Identifier(channel_of(self._settings.source.slot))
            connection.execute(sql.SQL("LISTEN {}").format(name))
        interval = self._settings.definitions.watch_interval_s
        if interval or self._catalog.is_new:
            self._look(connection)
        self._partitions.add_if_due(connection)
        next_look = time.monotonic() + (interval or _ALIVE_S)
        while not self._ended.is_set():
            notified = list(connection.notifies(timeout=_LISTEN_S, stop_after=1))
            asked = self._requested() or any(n.payload != LOOK_FOR_REQUESTS for n in notified)
            self._look_for_requests |= asked or bool(notified)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + (interval or _ALIVE_S)
                connection.execute("SELECT")  # a dead connection would never bring a request
                self._look_for_requests |= is_deaf
                self._partitions.add_if_due(connection)
                if interval:
                    self._look(connection)
                else:
                    self._retry_hidden()
            if not (asked or self._pending or self._look_for_requests):
                continue
            self._pending = not self._consider(connection, asked=asked)
            if self._ends_loop:
                return
            if self._pending:
                self._ended.wait(self._retry_s)

    def _look(self, connection: psycopg.Connection) -> None:
        """Check whether the catalog has changed since the last look or since the plan was read."""
        # Retired relations are dropped, by a plan without them, once the stream has passed them.
        is_first = self._catalog.is_new
        self._pending |= is_first and bool(self._plan.earlier)
        # What a watch has found it finds once: it counts also if the next one fails.
        changed = self._catalog.has_changed(connection, self._plan)
        self._pending |= changed
        changed |= self._shapes.has_changed(connection, self._plan)
        stream_plan = self._stream_plan()
        self._pending |= changed or stream_plan is not self._compared
        self._compared = stream_plan
        try:
            self._pending |= self._has_lost_members(connection, again=changed or is_first)
            # An owner may have added what the gateway may not.
            self._pending |= self._members.has_changed and bool(self._plan.held)
        except TransientError:
            self._pending = True  # a table is locked: that is looked at, and logged, once more
        held = bool(self._plan.held or self._counters.refusal or self._counters.muted)
        # Granted roles, and schemas that the registry accepts now, are in no digest.
        self._retry_held(held)

    def _has_lost_members(self, connection: psycopg.Connection, *, again: bool) -> bool:
        """Whether others have taken more tables out of the gateway's own publications."""
        lost = self._members.look(
            connection, self._plan, self._copies(), again=again, coming=self._coming
        )
        report_missed(self._plan, lost)
        return bool(lost)

    def _retry_hidden(self) -> None:
        """Retry subscriptions whose markers could not be read: an operator need not know of that.

        With the catalog not watched, whatever else is held waits for a reload.
        """
        self._retry_held(not self._setup.hidden.keys().isdisjoint(self._counters.muted))

    def _retry_held(self, held: bool) -> None:
        settled = all(state.is_settled for state in self._copies())
        if self._held_looks.due(time.monotonic(), held=held, settled=settled):
            self._pending = self._retries_hidden = True

    def _consider(self, connection: psycopg.Connection, *, asked: bool) -> bool:
        """Look for new definitions and prepare them; return False to retry."""
        try:
            # Set before the loop is released: it must not receive beyond the point.
            self._prepared = self._prepare(connection, asked=asked)
            self._ends_loop = self._prepared is not None
            if self._look_for_requests and not self._ends_loop:
                # Requests can need a start, which refused definitions would end.
                requests = self._read_requests(connection)
                self.unfit = refused_requests(connection, self._plan, requests)
                self.requests = requests
                self._ends_loop = bool(self.requests)
            self._look_for_requests = self._retries_hidden = False
            self._retry_s = _RETRY_S
            self._refusals.end()
        except TransientError as error:
            hint = {"hint": error.hint} if error.hint else {}
            event(_LOG, logging.WARNING, "reload postponed", error=error.message, **hint)
            # To read markers in vain takes most of a core.
            is_hidden = isinstance(error, HiddenMarkersError)
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S) if is_hidden else _RETRY_S
            return False
        except GatewayError as error:
            self._refusals.refuse(self._checked, error)
            self._look_for_requests = False
            # Another attempt holds these, with the definitions that are in force.
            self._ends_loop = self._has_to_hold = bool(self._members.lost)
            return True
        finally:
            self._hold = False
        return True

    def _prepare(
        self, connection: psycopg.Connection, *, asked: bool
    ) -> PreparedDefinitions | None:
        settings = self._settings
        self._checked = ""
        definitions = read_definitions(settings)
        self._checked = definitions.fingerprint
        forget_schemas(connection)
        facts = server_facts(connection)
        snapshot = read_snapshot(connection)
        rewritten = definitions.fingerprint != self._watermark.definitions
        reconcile = asked or rewritten
        hidden = self._setup.hidden
        if hidden and (asked or self._retries_hidden):
            with Registry(settings.registry, on_wait=self._go_on) as registry:
                hidden = still_hidden(settings, registry, hidden)
        muted = self._counters.muted
        muted_now = self._muted_now(definitions) | (hidden.keys() & muted.keys())
        # Held as before, they are no difference; nothing has to be registered to find that out.
        refused = {
            (table.subscription, table.oid): Fault(table.reason, always=True, cause=table.cause)
            for table in self._plan.held
            if table.subscription in muted_now and table.reason == muted.get(table.subscription)
        }
        taken: dict[str, Owner] = {}
        self._has_lost_members(connection, again=True)
        while True:
            plan = read_plan(settings, connection, definitions, self._current(), faults=refused)
            if lost := {id_: why for id_, why in self._members.lost.items() if id_ in plan.targets}:
                refused |= lost
                continue
            settings = with_topics(settings, plan, self._watermark.copies, self._setup.names)
            differs = self._differs(connection, settings, plan, rewritten, reconcile)
            if not differs and muted_now == muted.keys():
                if asked:
                    event(_LOG, logging.INFO, "nothing has changed in the definitions")
                return None
            # Everything that can be refused is refused here.
            with Registry(settings.registry, on_wait=self._go_on) as registry:
                try:
                    _, routing, _, more = register(
                        settings, connection, plan, facts, registry, hidden=hidden
                    )
                    added = added_subscriptions(self._plan, plan) - routing.muted.keys()
                    if added and not more:
                        taken |= claim_topics(settings, connection, facts, registry, added)
                except HiddenMarkersError as error:
                    new = error.subscriptions
                    if new <= hidden.keys() or not new <= left_out(plan, new):
                        raise
                    hidden = {**hidden, **reasons_of(error)}
                    continue  # without them
            if not more and not differs and routing.muted.keys() == muted.keys():
                return None
            if not more:
                break
            refused |= more
        if self._has_lost_members(connection, again=True):
            raise TransientError("the gateway's publications are being altered by somebody else")
        self._coming = plan
        try:
            for line in extend_publications(connection, plan, prefix=settings.source.slot):
                event(_LOG, logging.INFO, "publication", detail=line)
                self._members.forget()
        except BaseException:
            self._members.forget()  # a part of it may be committed
            raise
        self._hold_loop()
        point = wal_flush_lsn(connection)
        left = {name: why for name, why in hidden.items() if name in routing.muted}
        return PreparedDefinitions(
            *(definitions, plan, routing, reconcile, point, snapshot, frozenset(taken), left)
        )

    def _differs(
        self,
        connection: psycopg.Connection,
        settings: Settings,
        plan: Plan,
        rewritten: bool,
        reconcile: bool,
    ) -> bool:
        """Whether `plan` is to be put into force instead of the present one."""
        before = self._current().copies  # not as they were when this loop began: all were pending
        states = copy_states(plan, before, reconcile=reconcile, names=settings.topics.names)
        reports_ddl, stream_plan = has_ddl_messages(connection), self._stream_plan()
        return (
            rewritten
            or reports_ddl != self._setup.reports_ddl
            or has_new_copies(before, states)
            or plans_differ(self._plan, plan, stream_plan)
        )

    def _muted_now(self, definitions: Definitions) -> Set[str]:
        """Return the subscriptions whose topic of markers cannot be used; none if none was so.

        Raises:
            TransientError: Kafka does not answer in time.
        """
        before = self._counters.muted.keys()
        if not before:
            return before
        try:
            names = (subscription.name for subscription in definitions.subscriptions)
            return muted_subscriptions(self._settings, names).keys()
        except FatalError:  # no fault of the definitions; the loop finds it out by itself
            return before

    def _current(self) -> Watermark:
        """Return the watermark with which the loop began, with the current states of the copies."""
        return replace(self._watermark, copies=tuple(self._copies()))

    def _read_requests(self, connection: psycopg.Connection) -> tuple[CopyRequest, ...]:
        """Return the requests that are in Kafka and were not accepted."""
        settings = self._settings
        identity = slot_identity(server_facts(connection), settings)
        topic = settings.topics.progress
        found = read_progress(settings.kafka, topic, identity, settled=False)
        return tuple(request for request in found.requests if request.name not in self._accepted)

    def _hold_loop(self) -> None:
        """Stop the loop from receiving, and wait until it has stopped."""
        self._held.clear()
        self._hold = True
        while not self._held.wait(0.1):
            self._go_on()

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise _Ended
