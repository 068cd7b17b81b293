"""Who leads: the gateway whose connection streams from the slot. Everyone else stands by.

PostgreSQL gives a slot to one connection at a time, and takes it back when that connection ends or
has not answered for wal_sender_timeout. So the slot is the lock of the whole gateway: who does not
get it changes nothing, in Kafka neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import psycopg

from gateway.errors import SlotBusyError
from gateway.observe import event
from gateway.source.connection import classify_server_error
from gateway.source.replication import ReplicationConnection
from gateway.source.slot import slot_status

__all__ = ["StoppedWaiting", "lock_first_start", "start_stream"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
_REMIND_S: Final = 60.0


class StoppedWaiting(Exception):
    """The gateway was told to stop while it stood by."""


def lock_first_start(connection: psycopg.Connection, slot: str) -> None:
    """Let nobody else make the slot for as long as `connection` lasts.

    There is no slot yet to be the lock; an advisory lock of the session is.

    Raises:
        SlotBusyError: another gateway is making it; try again soon.
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(
            "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))",
            [f"pgsluice {slot}"],
        ).fetchone()
    except psycopg.Error as error:
        doing = f'locking the creation of slot "{slot}"'
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    if row is None or not row[0]:
        raise SlotBusyError(f'another gateway is about to make replication slot "{slot}"')


def start_stream(
    connection: psycopg.Connection,
    slot: str,
    start: Callable[[], ReplicationConnection],
    *,
    stopping: Callable[[], bool],
    pause: Callable[[float], None],
) -> ReplicationConnection | None:
    """Take the slot, standing by while another process has it.

    Args:
        connection: For looking at the slot.
        slot: Its name.
        start: Opens a connection and starts streaming; raises `SlotBusyError` while it cannot.
        stopping: Asked between two looks.
        pause: Waits for so many seconds, or until `stopping` may have changed.

    Returns:
        The started stream; None when the slot has gone meanwhile.

    Raises:
        StoppedWaiting: `stopping` said so.
        GatewayError: as `start` and `slot_status`.
    """
    waited_s = 0.0
    while True:
        status = slot_status(connection, slot)
        if status is None:
            return None
        if not status.active:
            try:
                return start()
            except SlotBusyError:
                pass  # somebody was quicker
        if waited_s % _REMIND_S < _LOOK_S:
            event(
                _LOG,
                logging.INFO,
                "standing by: another process reads the slot",
                slot=slot,
                pid=status.active_pid or "unknown",
                waited_s=int(waited_s),
            )
        if stopping():
            raise StoppedWaiting
        pause(_LOOK_S)
        waited_s += _LOOK_S
