"""Changed definitions while the gateway runs: noticed, checked, and put into force at one LSN.

A thread of its own with connections of its own, so that the loop never waits for it. It is asked by
SIGHUP or by `pgsluice reload` (a NOTIFY on the source server), and looks at the catalog every now
and then. What it does then, in this order:

    1. read the definitions, make the plan, build all routes: what would be refused at a start is
       refused here, and the old definitions stay in force
    2. make topics, and add the tables to the gateway's publications that the new plan needs
    3. wait until the transactions that run now have ended
    4. hold the loop, create a temporary slot: its consistent point is the LSN, its exported
       snapshot has what the tables hold there
    5. let the loop go on up to that LSN, where it ends with `Outcome.REACHED_SWITCH`

The daemon then copies from the snapshot (`InitialCopy.take_over`) and starts anew. A slot that is
being created waits for the transactions of that moment; step 3 keeps that time, in which the loop
is held, short.

Where nothing is to be copied, the present end of the WAL serves as the LSN, without a slot.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from gateway.config import Settings
from gateway.definitions.changes import TableChange, table_changes
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Definitions, Plan
from gateway.errors import GatewayError, TransientError
from gateway.lsn import Lsn, format_lsn
from gateway.observe import event
from gateway.provision import ensure_all_topics, read_definitions, routing_settings
from gateway.records import Watermark
from gateway.routing import RoutingSettings
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.sink.registry import Registry
from gateway.source.catalog import ServerCatalog, read_catalog
from gateway.source.connection import connect, current_wal_lsn, server_facts
from gateway.source.publications import extend_publications
from gateway.source.replication import ReplicationConnection
from gateway.source.watch import catalog_digest, has_ended, newest_transaction

__all__ = ["Reloader", "Takeover", "channel_of"]

_LOG: Final = logging.getLogger(__name__)
_TOPICS_TIMEOUT_S: Final = 10.0
_LISTEN_S: Final = 0.25
_RETRY_S: Final = 5.0
_HOLD_S: Final = 30.0
"""How long the loop is held at most for the slot's sake; then it goes on, and it is tried again."""
_JOIN_S: Final = 5.0


def channel_of(slot: str) -> str:
    """Return the channel of NOTIFY on which the gateway of a slot is asked to reload."""
    return f"pgsluice_{slot}"


@dataclass(frozen=True, slots=True)
class Takeover:
    """Definitions that can take over at `point`.

    Attributes:
        changes: The tables that are to be copied there.
        snapshot: Name of the exported snapshot, with the connection that keeps it; None when there
            is nothing to copy.
    """

    definitions: Definitions
    plan: Plan
    routing: RoutingSettings
    changes: tuple[TableChange, ...]
    point: Lsn
    snapshot: str | None
    connection: ReplicationConnection | None

    def close(self) -> None:
        """Give the snapshot up, and with it the temporary slot."""
        if self.connection is not None:
            self.connection.close()


class _Ended(Exception):
    """The loop has ended for another reason."""


class Reloader:
    """A `gateway.ports.Switch`. Start it with `with`; it has ended when the block has.

    Args:
        watermark: In force, with the states of all copies.
        plan: In force, when it is the whole one; None when tables are left out of it that have
            still to come.
        requested: Asked often; True once after a person asked for the definitions to be read.
        adopted: Whether tables have taken on other definitions than those of `plan` since.
    """

    def __init__(
        self,
        settings: Settings,
        watermark: Watermark,
        plan: Plan | None,
        definitions: Definitions,
        *,
        requested: Callable[[], bool],
        adopted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._watermark = watermark
        self._plan = plan
        self._definitions = definitions
        self._requested = requested
        self._adopted = adopted
        # Once in any case: the catalog may have changed since the plan was made from it.
        self._pending = True
        self._ended = threading.Event()
        self._hold = False
        self._held = threading.Event()
        self._takeover: Takeover | None = None
        self._found = False
        self._refused = ""
        self._thread = threading.Thread(target=self._run, name="pgsluice reload", daemon=True)

    def __enter__(self) -> Reloader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)
        self._give_up()

    def _give_up(self) -> None:
        """Close what nobody has taken."""
        takeover, self._takeover = self._takeover, None
        if takeover is not None:
            takeover.close()

    # What the loop asks

    def holds(self) -> bool:
        """See `gateway.ports.Switch`."""
        if self._hold:
            self._held.set()
            return True
        return False

    def point(self) -> Lsn | None:
        """See `gateway.ports.Switch`."""
        return None if self._takeover is None else self._takeover.point

    def take(self) -> Takeover:
        """Return what takes over at `point`; the caller closes it."""
        takeover, self._takeover = self._takeover, None
        assert takeover is not None
        return takeover

    # The thread

    def _run(self) -> None:
        while not self._ended.is_set() and not self._found:
            try:
                with connect(self._settings.source.dsn, application_name="pgsluice reload") as c:
                    self._watch(c)
            except _Ended:
                break
            except (GatewayError, psycopg.Error) as error:
                message = error.message if isinstance(error, GatewayError) else "connection lost"
                event(_LOG, logging.WARNING, "definitions are not watched", error=message)
                self._ended.wait(_RETRY_S)

    def _watch(self, connection: psycopg.Connection) -> None:
        name = sql.Identifier(channel_of(self._settings.source.slot))
        connection.execute(sql.SQL("LISTEN {}").format(name))
        interval = self._settings.definitions.watch_interval_s
        digest = self._digest(connection) if interval else ""
        next_look = time.monotonic() + interval
        while not self._ended.is_set():
            notified = list(connection.notifies(timeout=_LISTEN_S, stop_after=1))
            asked = self._requested() or bool(notified)
            if interval and time.monotonic() >= next_look:
                next_look = time.monotonic() + interval
                now = self._digest(connection)
                self._pending, digest = self._pending or now != digest, now
            if not (asked or self._pending):
                continue
            self._pending = not self._consider(connection, asked=asked)
            if self._found:
                return
            if self._pending:
                self._ended.wait(_RETRY_S)

    def _digest(self, connection: psycopg.Connection) -> str:
        plan = self._plan
        return "" if plan is None else catalog_digest(connection, self._definitions, plan)

    def _consider(self, connection: psycopg.Connection, *, asked: bool) -> bool:
        """Look for new definitions and prepare them; return False when it is to be tried again."""
        try:
            # Set before the loop is let go: it must not receive beyond the point.
            self._takeover = self._prepare(connection, asked=asked)
            self._found = self._takeover is not None
        except TransientError as error:
            event(_LOG, logging.WARNING, "reload put off", error=error.message)
            return False
        except GatewayError as error:
            if asked or error.message != self._refused:
                event(
                    _LOG,
                    logging.ERROR,
                    "changed definitions are refused, the old ones stay in force",
                    error=error.message,
                    hint=error.hint or "",
                )
            self._refused = error.message
            return True
        finally:
            self._hold = False
        if self._ended.is_set():
            self._give_up()
        return True

    def _prepare(self, connection: psycopg.Connection, *, asked: bool) -> Takeover | None:
        settings = self._settings
        definitions = read_definitions(settings)
        facts = server_facts(connection)
        plan = make_plan(
            definitions,
            read_catalog(connection, definitions),
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
        )
        rewritten = definitions.fingerprint != self._watermark.definitions
        # With an altered publication adopted since, the rows are not those of the plan alone.
        before = None if self._adopted() else self._plan
        changes = table_changes(plan, self._watermark.copies, before, reconcile=asked or rewritten)
        if not (rewritten or changes) and _same(self._plan, plan):
            if asked:
                event(_LOG, logging.INFO, "nothing has changed in the definitions")
            return None
        partitions = ensure_all_topics(settings, plan, timeout_s=_TOPICS_TIMEOUT_S)
        routing = routing_settings(settings, facts, plan, partitions)
        # Compiles every filter and registers every schema; nothing may be refused any more later.
        RelationRoutes(
            plan, routing, Totals({}), ServerCatalog(connection), Registry(settings.registry)
        ).register_all()
        for line in extend_publications(connection, plan, prefix=settings.source.slot):
            event(_LOG, logging.INFO, "publication", detail=line)
        if not changes:
            return self._without_copies(connection, definitions, plan, routing)
        return self._with_copies(connection, definitions, plan, routing, changes)

    def _without_copies(
        self,
        connection: psycopg.Connection,
        definitions: Definitions,
        plan: Plan,
        routing: RoutingSettings,
    ) -> Takeover:
        self._hold_loop()
        point = current_wal_lsn(connection)
        return Takeover(definitions, plan, routing, (), point, None, None)

    def _with_copies(
        self,
        connection: psycopg.Connection,
        definitions: Definitions,
        plan: Plan,
        routing: RoutingSettings,
        changes: tuple[TableChange, ...],
    ) -> Takeover:
        self._wait_for_running(connection)
        replication = ReplicationConnection(
            self._settings.source.dsn, application_name="pgsluice reload"
        )
        try:
            self._hold_loop()
            snapshot = replication.create_slot(
                f"{self._settings.source.slot[:40]}_reload_{secrets.token_hex(4)}",
                temporary=True,
                timeout_s=_HOLD_S,
                on_wait=lambda _: self._go_on(),
            )
        except BaseException:
            replication.close()
            raise
        event(
            _LOG,
            logging.INFO,
            "definitions change",
            tables=len(changes),
            consistent_point=format_lsn(snapshot.consistent_point),
        )
        return Takeover(
            definitions,
            plan,
            routing,
            changes,
            snapshot.consistent_point,
            snapshot.snapshot_name,
            replication,
        )

    def _wait_for_running(self, connection: psycopg.Connection) -> None:
        """Wait, with the loop going on, for the transactions that a new slot would wait for."""
        newest = newest_transaction(connection)
        next_warning = time.monotonic() + 10
        while not has_ended(connection, newest):
            self._go_on()
            self._ended.wait(0.1)
            if time.monotonic() >= next_warning:
                next_warning += 10
                event(
                    _LOG,
                    logging.WARNING,
                    "changed definitions wait for transactions that are still running",
                )

    def _hold_loop(self) -> None:
        """Make the loop receive nothing more, and wait until it does not."""
        self._held.clear()
        self._hold = True
        while not self._held.wait(0.1):
            self._go_on()

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise _Ended


def _same(before: Plan | None, after: Plan) -> bool:
    """Whether two plans take the same changes in the same way, and ask the same of the server."""
    return before is not None and (
        before.publishes,
        before.copies,
        before.subscriptions,
        before.server_publications,
    ) == (after.publishes, after.copies, after.subscriptions, after.server_publications)
