"""Thread that polls the source server, independently of the loop.

It has its own connection and shares only the posted figures with the loop. It also keeps the last
hour of lag, and notifies systemd that the daemon is alive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import psycopg

from gateway.config import Settings
from gateway.core.errors import AccessError, GatewayError
from gateway.core.lsn import Lsn
from gateway.monitor.health import (
    doing,
    has_started,
    lag_problem,
    lag_seconds,
    why_not_alive,
)
from gateway.monitor.notify import Notifier
from gateway.monitor.status import KAFKA, SOURCE, Status, of_table, tables_of
from gateway.observe import Counters, Figures, event
from gateway.source.session.blockers import Wait, waits
from gateway.source.session.connection import connect, server_facts, wal_flush_lsn
from gateway.source.session.server_support import may_not_replicate
from gateway.source.stream.slot import SlotStatus, slot_status

__all__ = ["Sample", "View", "Watch"]

_LOG: Final = logging.getLogger(__name__)
_TURN_S: Final = 0.5
_BEAT_S: Final = 0.1
_LOOK_S: Final = 5.0
_STATEMENT_S: Final = 10.0
_KEPT: Final = 720
_JOIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class View:
    """Last known state of the source server.

    Attributes:
        at: Time of the poll, in seconds of the monotonic clock.
        slot: Status of the slot; None if there is none.
        waits: Waits for other sessions' transactions.
        denied: Missing right of the role and the hint, or None.
    """

    at: float
    server_lsn: Lsn
    slot: SlotStatus | None
    waits: Sequence[Wait]
    denied: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of the last hour.

    Attributes:
        at: Time, in seconds since 1970.
        lag_s: Lag, see `lag_seconds`.
        lag_bytes: WAL that is not in Kafka; None if unknown.
        records: Number of records since the start of the process.
        frames: Number of frames since then.
    """

    at: float
    lag_s: float | None
    lag_bytes: int | None
    records: int
    frames: int


class _Ended(Exception):
    """The daemon has ended."""


class Watch:
    """Polling thread, which runs while its `with` block does. Thread-safe.

    Args:
        server: Whether to poll the server at all.

    Attributes:
        started_at: Start of the process, in seconds since 1970.
    """

    def __init__(
        self, settings: Settings, counters: Counters, notifier: Notifier, *, server: bool
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._notifier = notifier
        self._server = server
        self._connection: psycopg.Connection | None = None
        self.started_at = time.time()
        self._history: deque[Sample] = deque(maxlen=_KEPT)
        self._ended = threading.Event()
        self.view: View | None = None
        self._unseen = ""
        self._denied: tuple[str, str] | None = None
        self._threads = []
        if notifier.listens:
            beat = threading.Thread(target=self._beat, name="pgsluice alive", daemon=True)
            self._threads.append(beat)
        if server:
            watching = threading.Thread(target=self._look, name="pgsluice watch", daemon=True)
            self._threads.append(watching)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._notifier.stopping()
        for thread in self._threads:
            thread.join(_JOIN_S)

    @property
    def figures(self) -> Figures | None:
        """Figures posted by the loop."""
        return self._counters.posted

    def history(self) -> list[Sample]:
        """Return the last hour, oldest first."""
        return list(self._history)

    def status(self) -> Status | None:
        """Return the status of slot and tables; None before the server was reached.

        Polls from before the loop started are ignored, because a start creates the slot. While the
        server does not answer, the status is limited to what is known without it. While access is
        refused, older polls count as well: each attempt is a start, which would clear the alert.
        """
        view, figures = self.view, self.figures
        away = {SOURCE: self._unseen} if self._unseen else {}
        is_refused = self._denied or (figures is not None and figures.denied)
        is_older = figures is not None and view is not None and view.at < figures.phase_since
        if not away and (view is None or (is_older and not is_refused)):
            return None
        if figures is not None and figures.phase == "streaming" and figures.away:
            away[KAFKA] = figures.away.removeprefix(f"{KAFKA} does not answer: ")
        seen = None if self._unseen else view
        of_loop = None if figures is None else figures.denied
        denied = dict(filter(None, (of_loop, self._denied, None if seen is None else seen.denied)))
        slot, server_lsn = (None, None) if seen is None else (seen.slot, seen.server_lsn)
        waited = () if seen is None else seen.waits
        name, loop = self._settings.source.slot, None if figures is None else figures.loop
        if figures is None or loop is None:
            return Status(
                name,
                slot,
                server_lsn,
                None,
                waits=waited,
                away=away,
                denied=denied,
                standing_by=figures is not None and figures.phase == "standby",
                takeover_refused="" if figures is None else figures.takeover_refused,
            )
        most = self._settings.monitor.max_lag_s
        tables = tables_of(
            loop.copies, lambda copy: figures.estimates.get(of_table(copy)), figures.moving
        )
        durable = Lsn(loop.durable_lsn)
        if server_lsn is not None and figures.phase == "streaming":
            # The poll is up to five seconds old; what is in Kafka, the server has written.
            server_lsn = max(server_lsn, durable)
        return Status(
            name,
            slot,
            server_lsn,
            durable,
            tables,
            waited,
            refusal=figures.refusal,
            away=away,
            denied=denied,
            muted=figures.muted,
            lagging=lag_problem(figures, time.time(), most),
            last_change=loop.last_change,
            standing_by=figures.phase == "standby",
            takeover_refused=figures.takeover_refused,
        )

    # The threads

    def _beat(self) -> None:
        """Notify systemd, from a thread that waits for no server; immediately of a new status."""
        notified, due = "", 0.0
        while not self._ended.wait(_BEAT_S):
            figures, now, unix_now = self.figures, time.monotonic(), time.time()
            status = doing(figures)
            if status == notified and now < due:
                continue
            if not why_not_alive(figures, now, unix_now):
                self._notifier.alive(status, ready=has_started(figures))
                notified, due = status, now + _TURN_S

    def _look(self) -> None:
        looked = next_look = 0.0
        while not self._ended.wait(_TURN_S):
            figures = self.figures
            changed = figures is not None and looked < figures.phase_since
            if time.monotonic() < next_look and not changed:
                continue
            looked = time.monotonic()
            next_look = looked + _LOOK_S
            had_connection = self._connection is not None
            try:
                self._look_at_server()
            except _Ended:
                break
            except (GatewayError, psycopg.Error, OSError) as error:
                # The loop logs faults of the server; here only a poll has failed.
                message = error.message if isinstance(error, GatewayError) else "connection lost"
                event(_LOG, logging.DEBUG, "the server cannot be polled", error=message)
                self._forget_connection()
                if had_connection:
                    next_look = looked  # a new connection gives the reason
                else:
                    self._unseen = message
                    self._denied = _denied(error)
            else:
                self._unseen, self._denied = "", None
            self._sample()
        self._forget_connection()

    def _look_at_server(self) -> None:
        began = time.monotonic()
        source = self._settings.source
        if self._connection is None:
            self._connection = connect(
                source.dsn,
                application_name="pgsluice watch",
                statement_timeout_s=_STATEMENT_S,
                on_wait=self._go_on,
            )
        connection = self._connection
        self.view = View(
            began,
            wal_flush_lsn(connection),
            slot_status(connection, source.slot),
            waits(connection, source.slot),
            _denied(may_not_replicate(server_facts(connection))),
        )

    def _sample(self) -> None:
        figures, now = self.figures, time.time()
        if figures is None:
            return
        status = self.status()
        lag_bytes = None if status is None or figures.phase == "standby" else status.lag_bytes
        lag_s = lag_seconds(figures, now)
        self._history.append(Sample(now, lag_s, lag_bytes, figures.records, figures.frames))

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise _Ended


def _denied(error: Exception | None) -> tuple[str, str] | None:
    """Return the refused access and the hint, or None if it is another error."""
    return (error.message, error.hint or "") if isinstance(error, AccessError) else None
