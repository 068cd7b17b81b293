"""Replication connection: walsender commands, then the stream.

psycopg has no replication API, so this speaks libpq through `psycopg.pq.PGconn`. Every command is
sent without blocking and waited for with a deadline; once streaming has started, `receive` and
`send_feedback` never wait at all, and a silent server is asked, then counts as lost.

    ReplicationConnection ── create_slot ──► its consistent point
                          └─ start ────────► a `gateway.runtime.ports.Source`

Source: PostgreSQL manual, "Streaming Replication Protocol"; walsender.c; fe-protocol3.c.
"""

from __future__ import annotations

import operator
import struct
import time
from collections.abc import Collection, Container, Sequence
from typing import Final, Literal, Self

import psycopg
from psycopg import pq
from psycopg.pq import abc

from gateway.core.background import OnWait, keep_waiting
from gateway.core.closing import Closing
from gateway.core.errors import GatewayError, TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN, Lsn, parse_lsn
from gateway.core.watermark import EPOCH_US
from gateway.source.session.connection import connection_string, replication_settings
from gateway.source.session.server_errors import classify_server_error
from gateway.source.session.session import open_session
from gateway.source.stream.command_text import (
    create_slot_command,
    drop_slot_command,
    start_command,
)
from gateway.source.stream.commands import (
    CommandTimeout,
    Waited,
    end_copy,
    exchange,
    run,
    run_for_row,
)
from gateway.source.stream.errors import classify_result, missing_publication, primary_message
from gateway.source.stream.large_messages import LARGE, frame_of
from gateway.source.stream.receiver_timeout import Liveness, SilenceWatch

__all__ = ["ReplicationConnection"]

_UPDATE: Final = struct.Struct(">cQQQqB")
_POSITION: Final = operator.itemgetter(slice(1, 9))


class ReplicationConnection(Closing):
    """A walsender of the source database; a `gateway.runtime.ports.Source` once started.

    Not thread safe. The settings that decide how values read as text are fixed here, in the
    start-up packet, because output functions run in the walsender's session.

    Args:
        dsn: As the user gave it.
        receiver_timeout_s: Seconds of silence after which a stream is lost; 0 for never, None for
            the server's wal_sender_timeout.
        on_wait: Called while connecting, and while waiting for a command's answer.

    Raises:
        ConfigError: the DSN does not parse.
        TransientError: the server cannot be reached or has no free walsender.
        FatalError: the server refuses the role.
        BaseException: the exception of `on_wait`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application_name: str = "pgsluice",
        receiver_timeout_s: float | None = None,
        on_wait: OnWait = keep_waiting,
    ) -> None:
        complete = connection_string(
            dsn,
            application_name=application_name,
            settings=replication_settings(),
            replication=True,
        )
        self._session = open_session(complete, on_wait=on_wait)
        self._conn = self._session.pgconn
        self._conn.notice_handler = self._note
        self._receiver_timeout_s = receiver_timeout_s
        self.silent_for_s = 0.0
        self._silence = SilenceWatch(0.0)
        self._slot = ""
        self._wanted: Container[bytes] = _Any()
        self._sent_lsn = self._flush_lsn = self._write_lsn = ZERO_LSN
        self._feedback_pending = False
        self._failure: GatewayError | None = None
        self._missing: GatewayError | None = None

    @property
    def server_version(self) -> int:
        """The server's version as libpq reports it: 160004 is 16.4."""
        return self._conn.server_version

    @property
    def backend_pid(self) -> int:
        """PID of the server's process for this connection."""
        return self._conn.backend_pid

    @property
    def _can_fail_over(self) -> bool:
        return (
            self.server_version >= 170000
            and self._conn.parameter_status(b"in_hot_standby") == b"off"
        )

    def timeline_history(self, timeline: int) -> str:
        """Return the server's history file of `timeline`, which has to be above 1.

        Raises:
            TransientError: the connection is gone.
            FatalError: the server has no such file.
        """
        row = run_for_row(
            self._session, f"TIMELINE_HISTORY {timeline}", doing="reading the timeline's history"
        )
        return row[1]

    def create_slot(
        self,
        name: str,
        *,
        two_phase: bool = False,
        timeout_s: float = 600.0,
        on_wait: Waited = lambda _: None,
    ) -> Lsn:
        """Create a logical slot for pgoutput; return its consistent point.

        The server waits until every running transaction has ended. A call that times out leaves no
        slot. If the server can (17, and not a standby), the slot has ``failover``:
        standbys that synchronise slots have it too, and keep it when promoted.

        Args:
            name: Name of the slot, unquoted.
            two_phase: Decode prepared transactions at PREPARE.
            timeout_s: Timeout in seconds.
            on_wait: Called about every second with the seconds waited so far; may raise.

        Raises:
            ConfigError: not a slot name, or `two_phase` on a server that does not have it.
            SlotBusyError: a slot of this name exists.
            TransientError: timeout, or the connection is gone.
            FatalError: wal_level is not logical, no slot is free, or the role may not.
        """
        command = create_slot_command(
            name,
            two_phase=two_phase,
            can_fail_over=self._can_fail_over,
            server_version=self.server_version,
        )
        doing = f'creating replication slot "{name}"'
        try:
            row = run_for_row(
                self._session, command, doing=doing, timeout_s=timeout_s, waited=on_wait
            )
        except CommandTimeout:
            raise TransientError(
                f"{doing}: not done after {timeout_s:.0f} s",
                hint="it waits for every transaction that was running, prepared ones too: see "
                "xact_start in pg_stat_activity, and pg_prepared_xacts",
            ) from None
        fail_point("start.slot_made")
        return parse_lsn(row[1])

    def drop_slot(self, name: str, *, wait: bool = False, timeout_s: float = 60.0) -> None:
        """Drop a slot; with `wait`, wait until no process uses it.

        Raises:
            SlotError: there is no such slot.
            TransientError: it is in use, or the connection is gone.
        """
        command = drop_slot_command(name, wait=wait)
        doing = f'dropping replication slot "{name}"'
        try:
            run(self._session, command, doing=doing, timeout_s=timeout_s)
        except CommandTimeout:
            raise TransientError(
                f"{doing}: still in use after {timeout_s:.0f} s",
                hint="stop the process that reads it (active_pid in pg_replication_slots)",
            ) from None

    def start(
        self,
        slot: str,
        publications: Sequence[str],
        *,
        version: int = 1,
        streaming: Literal["off", "on", "parallel"] = "off",
        messages: bool = False,
        prefixes: Collection[str] | None = None,
        binary: bool = False,
        origin: Literal["any", "none"] | None = None,
        two_phase: bool = False,
        start_lsn: Lsn = ZERO_LSN,
    ) -> Self:
        """Start streaming; from now on this object is a `gateway.runtime.ports.Source`.

        Args:
            slot: Name of the slot.
            publications: Names, unquoted.
            version: Protocol version, see `gateway.source.stream.options`.
            streaming: Send large transactions before their end (``on`` needs version 2,
                ``parallel`` version 4).
            messages: Also send logical decoding messages.
            prefixes: Prefixes of wanted messages; large other ones come without their content. None
                for all.
            binary: Send values in binary format where their type has one.
            origin: None leaves the option out (servers before 16 do not have it).
            two_phase: Send PREPARE (needs version 3).
            start_lsn: Start of the stream; 0 for the slot's position, before which it never starts.

        Raises:
            SlotError: no such slot, another plugin's, another database's, or its WAL is gone.
            TransientError: the slot is in use, or the connection is gone.
            FatalError: the server refuses an option, or the role.
        """
        command = start_command(
            slot,
            publications,
            start_lsn,
            version=version,
            streaming=streaming,
            messages=messages,
            binary=binary,
            origin=origin,
            two_phase=two_phase,
        )
        self._slot = slot
        self._wanted = _Any() if prefixes is None else {prefix.encode() for prefix in prefixes}
        self.silent_for_s = self._find_receiver_timeout_s()
        self._silence = SilenceWatch(self.silent_for_s)
        doing = f'starting replication from slot "{slot}"'
        result = run(self._session, command, doing=doing)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise TransientError(f"{doing}: the server does not stream")
        self._sent_lsn = self._flush_lsn = self._write_lsn = ZERO_LSN
        return self

    def _find_receiver_timeout_s(self) -> float:
        if self._receiver_timeout_s is not None:
            return self._receiver_timeout_s
        query = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"
        (milliseconds,) = run_for_row(self._session, query, doing="reading wal_sender_timeout")
        return int(milliseconds) / 1000

    def fileno(self) -> int:
        """Return the socket, which is readable when the server has sent something.

        Raises:
            TransientError: the connection is gone.
        """
        try:
            return self._conn.socket
        except psycopg.Error as error:
            raise self._lost(str(error)) from None

    def receive(self, limit: int) -> list[bytes]:
        """Return received frames, at most `limit`, without waiting; see `Source.receive`.

        libpq's buffer is emptied before the socket is read again, so memory stays bounded by one
        read: a caller that does not return makes the server wait.

        Raises:
            TransientError: the connection is gone or silent, or the server is stopping.
            SlotError: the server ended the stream because of the slot.
            FatalError: the server cannot decode, or a publication is missing.
        """
        frames: list[bytes] = []
        append = frames.append
        get_copy_data = self._conn.get_copy_data
        may_read = True
        # The one hot loop of this module: some 1.1 us a frame, most of it libpq's.
        while len(frames) < limit:
            try:
                size, view = get_copy_data(1)
                if 0 < size < LARGE:
                    append(bytes(view))
                    continue
                if size > 0:
                    append(frame_of(view, self._wanted))
                    view.release()  # the next message comes into memory of its own
                    continue
                if size == 0 and may_read and self._failure is None:
                    may_read = False
                    self._conn.consume_input()  # also sends what was left of the feedback
                    continue
            except psycopg.Error as error:
                # What arrived before the connection broke is still in the buffer, the server's last
                # message among it: that is returned first, and this error raised when it is empty.
                if self._failure is not None:
                    break
                self._failure = self._lost(str(error))
                continue
            if size < 0:
                self._failure = self._stream_end()
            break
        if self._missing is not None:
            # Frames of this very call may already lack changes: none of them may be published.
            raise self._missing
        if frames:
            self._silence.on_message()
            self._sent_lsn = max(self._sent_lsn, _greatest_lsn(frames))
        elif self._failure is not None:
            raise self._failure
        else:
            self._judge_silence()
        if self._feedback_pending:
            self._send_update(reply_requested=False)
        return frames

    def _judge_silence(self) -> None:
        match self._silence.judge(time.monotonic()):
            case Liveness.ASK:
                self._send_update(reply_requested=True)
            case Liveness.LOST:
                self._failure = self._lost(
                    "no message from the server, not even a reply to a request"
                )
                raise self._failure
            case Liveness.WAIT:
                pass

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        """Send a standby status update; see `Source.send_feedback`.

        A position below an earlier one is sent as the earlier one. When the socket accepts nothing
        more, the newest position is remembered and sent by the next call or `receive`.

        A position that the server has not reached in this session is not sent: on a server whose
        WAL is shorter than that of its predecessor it would move the slot beyond the WAL.

        Raises:
            TransientError: the connection is gone.
        """
        if flush_lsn <= self._sent_lsn:
            self._flush_lsn = max(self._flush_lsn, flush_lsn)
        written = min(write_lsn or ZERO_LSN, self._sent_lsn)
        self._write_lsn = max(self._write_lsn, self._flush_lsn, written)
        self._send_update(reply_requested=reply_requested)

    def finish(self, timeout_s: float) -> bool:
        """End the stream in order, and close the connection.

        The server ends its side when it has read everything before our end, the last feedback above
        all, and has released the slot. Anything it sends until then is discarded.

        Returns:
            Whether it has, within `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while self._feedback_pending:
                if not exchange(self._conn, deadline):
                    return False
                self._send_update(reply_requested=False)
            return end_copy(self._conn, deadline)
        except (psycopg.Error, GatewayError):
            return False
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _send_update(self, *, reply_requested: bool) -> None:
        flush, write = self._flush_lsn, self._write_lsn
        now = time.time_ns() // 1000 - EPOCH_US
        try:
            # Only one update waits in libpq's buffer at a time, or a server that does not read
            # would make it grow.
            if self._feedback_pending and self._conn.flush() != 0:
                return
            queued = self._conn.put_copy_data(
                _UPDATE.pack(b"r", write, flush, flush, now, int(reply_requested))
            )
            self._feedback_pending = queued == 0 or self._conn.flush() != 0
        except psycopg.Error as error:
            if self._failure is None:
                self._failure = self._lost(str(error))
            raise self._failure from None

    def _stream_end(self) -> GatewayError:
        """Return the error with which the server ended the copy; libpq has the whole message."""
        result = self._conn.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return TransientError(
                f'the source server ended the stream of slot "{self._slot}"',
                hint="it is stopping, or was promoted",
            )
        return classify_result(result, doing=f'streaming from slot "{self._slot}"')

    def _lost(self, text: str) -> GatewayError:
        doing = f'streaming from slot "{self._slot}"' if self._slot else "talking to it"
        return classify_server_error(None, text, doing=doing)

    def _note(self, notice: abc.PGresult) -> None:
        """Since 18 a missing publication is a warning, and its changes are skipped."""
        if notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION) == b"LoadPublications":
            self._missing = missing_publication(primary_message(notice))


class _Any:
    """A container of everything."""

    def __contains__(self, _: object) -> bool:
        return True


def _greatest_lsn(frames: Sequence[bytes]) -> Lsn:
    """Return the greatest wal_start of XLogData and wal_end of keepalives, both after the tag.

    XLogData of a Commit has the end of its record there.
    """
    return Lsn(int.from_bytes(max(map(_POSITION, frames))))
