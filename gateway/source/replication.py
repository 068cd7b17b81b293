"""The replication connection: walsender commands, then the stream.

psycopg has no replication API, so this speaks libpq through `psycopg.pq.PGconn`. Every command is
sent without blocking and waited for with a deadline; once streaming has started, `receive` and
`send_feedback` never wait at all.

    ReplicationConnection ── create_slot ──► exported snapshot, valid until the next command
                          └─ start ────────► a `gateway.ports.Source`

Source: PostgreSQL manual, "Streaming Replication Protocol"; walsender.c; fe-protocol3.c.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

import psycopg
from psycopg import pq
from psycopg.pq import abc

from gateway.errors import ConfigError, GatewayError, TransientError
from gateway.lsn import ZERO_LSN, Lsn, format_lsn, parse_lsn
from gateway.source.connection import (
    classify_connect_failure,
    classify_server_error,
    connection_string,
    replication_settings,
)
from gateway.source.walsender import CommandTimeout, run, run_for_row
from gateway.source.walsender_errors import classify_result, missing_publication, primary_message

__all__ = [
    "OUTPUT_PLUGIN",
    "ReplicationConnection",
    "SlotSnapshot",
    "SystemIdentity",
    "highest_protocol_version",
]

OUTPUT_PLUGIN: Final = "pgoutput"

_SLOT_NAME: Final = re.compile(r"\A[a-z0-9_]{1,63}\Z")
_UPDATE: Final = struct.Struct(">cQQQqB")
_POSTGRES_EPOCH_S: Final = 946_684_800  # 2000-01-01 in Unix time


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """The answer to IDENTIFY_SYSTEM.

    Attributes:
        system_identifier: Decimal digits.
        flush_lsn: How far the server's own WAL is flushed.
    """

    system_identifier: str
    timeline: int
    flush_lsn: Lsn
    database: str


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """A new slot and the snapshot that goes with it.

    Attributes:
        consistent_point: The snapshot has every transaction whose commit record lies before it;
            the stream has all others.
        snapshot_name: For SET TRANSACTION SNAPSHOT, until the connection's next command or end.
    """

    slot: str
    consistent_point: Lsn
    snapshot_name: str


def highest_protocol_version(server_version: int) -> int:
    """The newest pgoutput protocol of a server: 2 in 14, 3 in 15, 4 from 16 on.

    Source: PostgreSQL manual, "Logical Streaming Replication Parameters".
    """
    return 4 if server_version >= 160000 else 3 if server_version >= 150000 else 2


class ReplicationConnection:
    """A walsender of the source database, as `gateway.ports.Source` once `start` was called.

    Not thread safe. The settings that decide how values read as text are fixed here, in the
    start-up packet, because output functions run in the walsender's session.

    Raises:
        ConfigError: the DSN does not parse.
        TransientError: the server cannot be reached or has no free walsender.
        FatalError: the server refuses the role.
    """

    def __init__(self, dsn: str, *, application_name: str = "pgsluice") -> None:
        complete = connection_string(
            dsn,
            application_name=application_name,
            settings=replication_settings(),
            replication=True,
        )
        try:
            # Blocks for connect_timeout (10 s unless the DSN says otherwise) and host at most.
            self._conn: abc.PGconn = pq.PGconn.connect(complete.encode())
        except psycopg.Error as error:
            raise classify_connect_failure(complete, str(error)) from None
        if self._conn.status != pq.ConnStatus.OK:
            text = self._conn.get_error_message()
            self._conn.finish()
            raise classify_connect_failure(complete, text)
        self._conn.nonblocking = 1
        self._conn.notice_handler = self._note
        self._slot = ""
        self._flush_lsn = self._write_lsn = ZERO_LSN
        self._feedback_pending = False
        self._failure: GatewayError | None = None
        self._missing: GatewayError | None = None

    @property
    def server_version(self) -> int:
        """As libpq gives it: 160004 is 16.4."""
        return self._conn.server_version

    def identify_system(self) -> SystemIdentity:
        """Ask who the server is.

        Raises:
            TransientError: the connection is gone.
        """
        row = run_for_row(self._conn, "IDENTIFY_SYSTEM", doing="identifying the system")
        return SystemIdentity(row[0], int(row[1]), parse_lsn(row[2]), row[3])

    def create_slot(
        self,
        name: str,
        *,
        two_phase: bool = False,
        temporary: bool = False,
        timeout_s: float = 600.0,
        on_wait: Callable[[float], None] | None = None,
    ) -> SlotSnapshot:
        """Create a logical slot for pgoutput and export its snapshot.

        The server waits until every transaction that was running has ended. A call that gives up
        leaves no slot behind.

        Args:
            name: Unquoted; what PostgreSQL allows in a slot's name.
            two_phase: Decode prepared transactions at PREPARE.
            temporary: Drop it when this connection ends.
            timeout_s: When to give up.
            on_wait: Called about every second with the seconds waited so far; may raise.

        Raises:
            ConfigError: not a slot name, or `two_phase` on a server that does not have it.
            SlotError: a slot of this name exists.
            TransientError: timeout, or the connection is gone.
            FatalError: wal_level is not logical, no free slot, no right to.
        """
        _check_name(name)
        doing = f'creating replication slot "{name}"'
        if two_phase and self.server_version < 150000:
            raise ConfigError("two_phase needs PostgreSQL 15 or later on the source")
        kind = " TEMPORARY" if temporary else ""
        if self.server_version >= 150000:
            options = f" (SNAPSHOT 'export'{', TWO_PHASE true' if two_phase else ''})"
        else:
            options = " EXPORT_SNAPSHOT"
        command = f'CREATE_REPLICATION_SLOT "{name}"{kind} LOGICAL {OUTPUT_PLUGIN}{options}'
        try:
            row = run_for_row(
                self._conn, command, doing=doing, timeout_s=timeout_s, on_wait=on_wait
            )
        except CommandTimeout:
            raise TransientError(
                f"{doing}: not done after {timeout_s:.0f} s",
                hint="it waits for every transaction that was running, prepared ones too: see "
                "xact_start in pg_stat_activity, and pg_prepared_xacts",
            ) from None
        return SlotSnapshot(row[0], parse_lsn(row[1]), row[2])

    def drop_slot(self, name: str, *, wait: bool = False, timeout_s: float = 60.0) -> None:
        """Drop a slot; with `wait`, wait until nobody uses it.

        Raises:
            SlotError: there is no such slot.
            TransientError: it is in use, or the connection is gone.
        """
        _check_name(name)
        doing = f'dropping replication slot "{name}"'
        command = f'DROP_REPLICATION_SLOT "{name}"{" WAIT" if wait else ""}'
        try:
            run(self._conn, command, doing=doing, timeout_s=timeout_s)
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
        binary: bool = False,
        origin: Literal["any", "none"] | None = None,
        two_phase: bool = False,
        start_lsn: Lsn = ZERO_LSN,
    ) -> Self:
        """Start streaming; from now on this object is a `gateway.ports.Source`.

        Args:
            slot: Its name.
            publications: Names, unquoted.
            version: Protocol version, see `highest_protocol_version`.
            streaming: Send large transactions before their end (``on`` needs version 2,
                ``parallel`` version 4).
            messages: Also send logical decoding messages.
            binary: Send values in binary format where their type has one.
            origin: None leaves the option out (servers before 16 do not have it).
            two_phase: Send PREPARE (needs version 3).
            start_lsn: 0: the slot's own position. The server never starts before that.

        Raises:
            SlotError: no such slot, another plugin's, another database's, or its WAL is gone.
            TransientError: the slot is in use, or the connection is gone.
            FatalError: the server refuses an option, or the role.
        """
        _check_name(slot)
        options = {
            "proto_version": str(version),
            "publication_names": ",".join(_quote_identifier(name) for name in publications),
        }
        if streaming != "off":
            options["streaming"] = streaming
        if messages:
            options["messages"] = "true"
        if binary:
            options["binary"] = "true"
        if origin is not None:
            options["origin"] = origin
        if two_phase:
            options["two_phase"] = "on"
        listed = ", ".join(f"{name} {_quote_literal(value)}" for name, value in options.items())
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(start_lsn)} ({listed})'
        self._slot = slot
        doing = f'starting replication from slot "{slot}"'
        result = run(self._conn, command, doing=doing)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise TransientError(f"{doing}: the server does not stream")
        self._flush_lsn = self._write_lsn = ZERO_LSN
        return self

    def fileno(self) -> int:
        """The socket: readable when the server has sent something.

        Raises:
            TransientError: the connection is gone.
        """
        try:
            return self._conn.socket
        except psycopg.Error as error:
            raise self._lost(str(error)) from None

    def receive(self, limit: int) -> list[bytes]:
        """Take what has arrived, at most `limit` frames, without waiting; see `Source.receive`.

        libpq's buffer is emptied before the socket is read again, so memory stays bounded by what
        one read brings: a caller that does not come back makes the server wait.

        Raises:
            TransientError: the connection is gone, or the server is stopping.
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
                if size > 0:
                    append(bytes(view))
                    continue
                if size == 0 and may_read and self._failure is None:
                    may_read = False
                    self._conn.consume_input()  # also sends what was left of the feedback
                    continue
            except psycopg.Error as error:
                # What arrived before the connection broke is still in the buffer, the server's
                # last words among it: taken first, this error is raised when it is empty.
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
        if self._failure is not None and not frames:
            raise self._failure
        if self._feedback_pending:
            self._send_update(reply_requested=False)
        return frames

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        """Send a standby status update; see `Source.send_feedback`.

        A position below an earlier one is sent as the earlier one. When the socket takes nothing
        more, the newest position is remembered and sent by the next call or `receive`.

        Raises:
            TransientError: the connection is gone.
        """
        self._flush_lsn = max(self._flush_lsn, flush_lsn)
        self._write_lsn = max(self._write_lsn, self._flush_lsn, write_lsn or ZERO_LSN)
        self._send_update(reply_requested=reply_requested)

    def close(self) -> None:
        """Close the connection; a temporary slot and an exported snapshot go with it."""
        self._conn.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send_update(self, *, reply_requested: bool) -> None:
        flush, write = self._flush_lsn, self._write_lsn
        now = time.time_ns() // 1000 - _POSTGRES_EPOCH_S * 1_000_000
        try:
            # Only one update waits in libpq's buffer at a time, or a server that does not read
            # would make it grow.
            if self._feedback_pending and self._conn.flush() != 0:
                return
            taken = self._conn.put_copy_data(
                _UPDATE.pack(b"r", write, flush, flush, now, int(reply_requested))
            )
            self._feedback_pending = taken == 0 or self._conn.flush() != 0
        except psycopg.Error as error:
            if self._failure is None:
                self._failure = self._lost(str(error))
            raise self._failure from None

    def _stream_end(self) -> GatewayError:
        """The server has ended the copy: read why. libpq has the whole message already."""
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


def _check_name(name: str) -> None:
    if _SLOT_NAME.match(name) is None:
        raise ConfigError(
            f"{name!r} is not a name for a replication slot",
            key="source.slot",
            hint="1 to 63 characters: lower-case letters, digits and the underscore",
        )


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
