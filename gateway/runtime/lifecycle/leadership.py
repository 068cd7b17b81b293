"""Leader election by the slot: the gateway that streams from it leads, all others stand by.

PostgreSQL gives a slot to one connection at a time, and releases it when that connection ends or
has not answered for wal_sender_timeout. This makes the slot the lock of the whole gateway: without
it, a gateway changes nothing, nor anything in Kafka.

A slot that does not exist cannot be held, so that one is created, and dropped, under an advisory
lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import psycopg

from gateway.core.errors import SlotBusyError
from gateway.observe import event
from gateway.runtime.lifecycle.slot_start import SlotStart
from gateway.runtime.lifecycle.start_decision import StartOver
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.planning.setup import commit_claim
from gateway.sink.delivery.sink import TransactionalSink
from gateway.source.session.connection import MAY_REPLICATE
from gateway.source.session.server_errors import classify_server_error
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import drop_slot, slot_status

__all__ = ["StoppedWaiting", "lock_first_start", "start_over", "start_stream"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
_REMIND_S: Final = 60.0
_HOLDERS: Final = f"""
SELECT a.pid, r.rolname::text, {MAY_REPLICATE}
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
JOIN pg_catalog.pg_roles AS r ON r.oid = a.usesysid
JOIN pg_catalog.pg_database AS d ON d.oid = l.database,
pg_catalog.hashtextextended(%s, 0) AS key
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
AND d.datname = pg_catalog.current_database()
AND l.classid::pg_catalog.int8 = (key >> 32) & 4294967295
AND l.objid::pg_catalog.int8 = key & 4294967295
ORDER BY 1
"""  # noqa: S608


class StoppedWaiting(Exception):
    """Raised when the gateway is to stop while it stands by."""


def lock_first_start(connection: psycopg.Connection, slot: str) -> None:
    """Lock the creation of the slot for as long as `connection` lasts.

    Without a slot, an advisory lock of the session is the lock. Any role can acquire it, and it
    only counts if its holder may create a slot.

    Raises:
        SlotBusyError: another gateway is creating it; try again soon.
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(
            "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(%s, 0))",
            [f"pgsluice {slot}"],
        ).fetchone()
        holders = connection.execute(_HOLDERS, [f"pgsluice {slot}"]).fetchall()
    except psycopg.Error as error:
        doing = f'locking the creation of slot "{slot}"'
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    if row is not None and row[0]:
        return
    gateways = [
        f"process {pid} of role {role}" for pid, role, may_replicate in holders if may_replicate
    ]
    if gateways or not holders:
        who = f": {gateways[0]} has its lock" if gateways else ""
        raise SlotBusyError(f'another gateway is about to create replication slot "{slot}"{who}')
    for pid, role, _ in holders:
        event(
            _LOG,
            logging.WARNING,
            "lock of the first start ignored: its holder cannot be a gateway",
            slot=slot,
            pid=pid,
            role=role,
        )


def start_stream(
    slot: SlotStart, stand_by: Callable[[float], None]
) -> ReplicationConnection | None:
    """Start the stream of the slot, standing by while another process has it.

    Args:
        slot: The slot, with the plan.
        stand_by: Waits for a number of seconds, or until the gateway is to stop.

    Returns:
        The started stream; None if the slot no longer exists, or if the setup is from before
        another gateway led and leaves out subscriptions that may be readable by now.

    Raises:
        StoppedWaiting: the gateway is to stop.
        GatewayError: as `SlotStart.start` and `slot_status`.
    """
    process, name = slot.process, slot.settings.source.slot
    waited_s = 0.0
    while True:
        status = slot_status(slot.outside.connection, name)
        if status is None:
            return None
        because = None if status.active else process.standby.why_not()
        if not status.active and because is None:
            if slot.setup.hidden and process.standby.has_seen_leader:
                return None
            try:
                return slot.start()
            except SlotBusyError:
                pass  # somebody was quicker
        if waited_s % _REMIND_S < _LOOK_S and because is not None:
            event(
                _LOG,
                logging.WARNING,
                "standing by: no process reads the slot, and this gateway does not take over",
                slot=name,
                because=because,
                waited_s=int(waited_s),
            )
        elif waited_s % _REMIND_S < _LOOK_S:
            event(
                _LOG,
                logging.INFO,
                "standing by: another process reads the slot",
                slot=name,
                pid=status.active_pid or "unknown",
                waited_s=int(waited_s),
            )
        if process.stopping():
            raise StoppedWaiting
        stand_by(_LOOK_S)
        waited_s += _LOOK_S


def start_over(
    slot: SlotStart, receiver: Receiver, sink: TransactionalSink, decision: StartOver
) -> None:
    """Drop the slot, which is held and proven to be ours; the next attempt creates it again.

    Between the end of the stream and the drop another gateway can acquire the slot, find the claim,
    and start over as well. The lock keeps it from creating a slot of its own, which this gateway,
    frozen for long enough, would drop; and the session that has the lock drops, or nobody.

    Raises:
        SlotBusyError: another gateway is creating or dropping it.
        TransientError: the connection is gone, Kafka has not committed the claim, or the gateway is
            stopping; the next start finds the claim, and starts over again.
    """
    setup, name, connection = slot.setup, slot.settings.source.slot, slot.outside.connection
    lock_first_start(connection, name)
    event(_LOG, logging.WARNING, "starting over", slot=name, because=decision.because)
    commit_claim(sink, setup.facts.timeline, setup.definitions.fingerprint)
    receiver.close()
    drop_slot(connection, name, pause=slot.process.pause, on_wait=slot.on_wait)
