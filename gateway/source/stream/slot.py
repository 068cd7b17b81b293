"""State of the replication slot, and whether the gateway can continue with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg
from psycopg import errors, sql

from gateway.core.background import OnWait, keep_waiting
from gateway.core.errors import GatewayError, SlotBusyError, SlotError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.source.session.connection import connect
from gateway.source.session.server_errors import classify_server_error
from gateway.source.stream.command_text import OUTPUT_PLUGIN

__all__ = [
    "SlotStatus",
    "check_owner",
    "check_slot",
    "drop_slot",
    "is_reading",
    "reader_sign",
    "slot_status",
]


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One row of pg_replication_slots.

    Attributes:
        plugin: None for a physical slot.
        active_pid: The process that reads it, or None.
        confirmed_flush_lsn: LSN confirmed by a consumer; None if the slot is physical, or not
            finished.
        restart_lsn: LSN from which on WAL is kept; None if it is lost.
        wal_status: reserved, extended, unreserved or lost; None when the slot has no restart_lsn.
        safe_wal_bytes: WAL that can be written before the slot may be lost; None: no limit.
        invalidation_reason: Why the slot was invalidated (rows_removed, wal_removed,
            wal_level_insufficient, idle_timeout); None when it was not, and before 16 where only
            `wal_status` does.
        two_phase: Whether it decodes at PREPARE.
        reader: Name of the application that reads it; None if none does, or if the role may not see
            it.
        reading_since: Start of its connection, in seconds since 1970; likewise.
    """

    name: str
    plugin: str | None
    database: str | None
    temporary: bool
    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None
    safe_wal_bytes: int | None
    invalidation_reason: str | None
    two_phase: bool
    reader: str | None = None
    reading_since: float | None = None

    @property
    def active(self) -> bool:
        """Whether some process reads it."""
        return self.active_pid is not None

    @property
    def lost(self) -> bool:
        """Whether it can never be read again."""
        return self.wal_status == "lost" or self.invalidation_reason is not None


_LOOK_S: Final = 10.0
_IN_USE_S: Final = 0.1
_QUERY: Final = sql.SQL(
    "SELECT plugin::pg_catalog.text, database::pg_catalog.text, temporary, active_pid,"
    " confirmed_flush_lsn::pg_catalog.text, restart_lsn::pg_catalog.text, wal_status,"
    " safe_wal_size, {}, two_phase, a.application_name,"
    " EXTRACT(epoch FROM a.backend_start)::pg_catalog.float8"
    " FROM pg_catalog.pg_replication_slots AS s"
    " LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) s.active_pid"
    " WHERE s.slot_name OPERATOR(pg_catalog.=) %s::pg_catalog.name"
)
# Columns that are newer than 14, and their substitutes before.
_INVALIDATION_REASON: Final[tuple[tuple[int, LiteralString], ...]] = (
    (170000, "invalidation_reason"),
    (160000, "CASE WHEN conflicting THEN 'rows_removed' END"),
    (0, "NULL"),
)

_SIGN: Final = """
SELECT s.active_pid, s.confirmed_flush_lsn::pg_catalog.text, r.reply_time::pg_catalog.text
FROM pg_catalog.pg_replication_slots AS s
LEFT JOIN pg_catalog.pg_stat_replication AS r ON r.pid OPERATOR(pg_catalog.=) s.active_pid
WHERE s.slot_name OPERATOR(pg_catalog.=) %s::pg_catalog.name AND s.active_pid IS NOT NULL
"""


def slot_status(connection: psycopg.Connection[Any], name: str) -> SlotStatus | None:
    """Look the slot up, on an autocommit connection; None when there is no slot of this name.

    Raises:
        TransientError: the connection is gone.
    """
    version = connection.info.server_version
    reason = next(text for since, text in _INVALIDATION_REASON if version >= since)
    try:
        row = connection.execute(_QUERY.format(sql.SQL(reason)), [name]).fetchone()
    except psycopg.Error as error:
        doing = f'looking up replication slot "{name}"'
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    if row is None:
        return None
    return SlotStatus(
        name=name,
        plugin=row[0],
        database=row[1],
        temporary=row[2],
        active_pid=row[3],
        confirmed_flush_lsn=None if row[4] is None else parse_lsn(row[4]),
        restart_lsn=None if row[5] is None else parse_lsn(row[5]),
        wal_status=row[6],
        safe_wal_bytes=row[7],
        invalidation_reason=row[8],
        two_phase=row[9],
        reader=row[10],
        reading_since=row[11],
    )


def drop_slot(
    connection: psycopg.Connection[Any],
    name: str,
    *,
    pause: Callable[[float], None],
    on_wait: OnWait = keep_waiting,
    timeout_s: float = 60.0,
) -> None:
    """Drop a slot in this session, on an autocommit connection; nothing if there is none.

    Unlike DROP_REPLICATION_SLOT it has no effect once the session, and a lock with it, is gone.

    Args:
        connection: The session.
        name: Name of the slot.
        pause: Waits for a number of seconds while another process uses the slot.
        on_wait: Called before each pause, which takes no time in a gateway that is stopping.
        timeout_s: For how long, in seconds.

    Raises:
        SlotBusyError: it is still used after `timeout_s`.
        TransientError: the connection is gone.
        AccessError: the role may not.
        BaseException: the exception of `on_wait`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [name])
        except errors.UndefinedObject:
            return
        except errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise SlotBusyError(
                    f'dropping replication slot "{name}": still in use after {timeout_s:.0f} s',
                    hint="stop the process that reads it (active_pid in pg_replication_slots)",
                ) from None
            on_wait()
            pause(_IN_USE_S)
        except psycopg.Error as error:
            doing = f'dropping replication slot "{name}"'
            raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
        else:
            return


def reader_sign(connection: psycopg.Connection[Any], name: str) -> tuple[Any, ...] | None:
    """Return values that change while a live process reads the slot; None if none does.

    These are the server's process, the confirmed LSN, and the time of the last reply, which a role
    sees of its own processes and, as a member of pg_read_all_stats, of all.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(_SIGN, [name]).fetchone()
    except psycopg.Error as error:
        doing = f'looking up who reads replication slot "{name}"'
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    return row


def is_reading(dsn: str, name: str, pid: int) -> bool:
    """Whether the server's process `pid` has the slot now; False when the server does not say."""
    try:
        with connect(dsn, statement_timeout_s=_LOOK_S) as connection:
            status = slot_status(connection, name)
    except GatewayError:
        return False
    return status is not None and status.active_pid == pid


def check_owner(status: SlotStatus, database: str) -> None:
    """Refuse a slot that no gateway of `database` can have made.

    Raises:
        SlotError: it is another plugin's or another database's.
    """
    if status.plugin != OUTPUT_PLUGIN:
        kind = "a physical slot" if status.plugin is None else f"one of plugin {status.plugin}"
        raise SlotError(
            f'replication slot "{status.name}" is {kind}, not of {OUTPUT_PLUGIN}',
            hint="somebody else uses this name: choose another source.slot",
        )
    if status.database != database:
        raise SlotError(
            f'replication slot "{status.name}" belongs to database {status.database}, not to '
            f"{database}",
            hint="choose another source.slot, or name the other database in source.dsn",
        )


def check_slot(status: SlotStatus, database: str) -> None:
    """Check that the gateway can read the slot.

    Raises:
        SlotError: it is another plugin's or another database's, or is lost.
    """
    check_owner(status, database)
    if status.lost:
        why = status.invalidation_reason or "its WAL was removed"
        raise SlotError(
            f'replication slot "{status.name}" is lost ({why})',
            hint="changes are missing for good: drop it with 'pgsluice slot drop' and repeat the "
            "initial copy; raise max_slot_wal_keep_size (and, since 18, "
            "idle_replication_slot_timeout) so that it outlasts the next pause",
        )
    if status.confirmed_flush_lsn is None:
        raise SlotError(
            f'replication slot "{status.name}" was not created to its end',
            hint="drop it with 'pgsluice slot drop', unless it is being created at this moment",
        )
