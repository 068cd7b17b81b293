"""Requests to the running gateway: a NOTIFY on the source server; the answer is in Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.display import said_if_slow
from gateway.core.errors import GatewayError
from gateway.runtime.planning.setup import slot_identity
from gateway.runtime.reload.reloader import channel_of
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.progress import read_progress
from gateway.source.session.blockers import has_sessions
from gateway.source.session.connection import server_facts
from gateway.source.stream.slot import slot_status

__all__ = ["PROGRESS", "READING", "ask", "reads_slot"]

PROGRESS: Final = "`pgsluice status` shows the progress of copies"
READING: Final = "reading the definitions, and their tables at the source"
"""Step of a command before it has a plan, said where it takes long."""
_ASK_AGAIN_S: Final = 5.0
_LOOK_S: Final = 0.2
"""Seconds between two looks at what is committed, each of which makes clients of Kafka."""
_ABSENT_S: Final = 10.0
"""Seconds within which a gateway that restarts, as for new definitions, is back."""


def ask(
    settings: Settings,
    connection: psycopg.Connection,
    saying: str,
    done: Callable[[CommittedState], bool],
    timeout_s: float,
    *,
    waits_for: str,
    absent: GatewayError,
    late: GatewayError,
) -> None:
    """Notify the gateway until `done` accepts what it has committed.

    Args:
        settings: Settings of the gateway.
        connection: Connection to the source server.
        saying: Payload of the NOTIFY.
        done: Condition, polled.
        timeout_s: Timeout in seconds.
        waits_for: Task of the gateway, as an infinitive, for whoever waits.
        absent: Error raised if no gateway runs, or if it has ended meanwhile.
        late: Error raised after `timeout_s`.
    """
    with said_if_slow(f"waiting for the gateway to {waits_for}; {PROGRESS}"):
        _ask(settings, connection, saying, done, timeout_s, absent, late)


def _ask(
    settings: Settings,
    connection: psycopg.Connection,
    saying: str,
    done: Callable[[CommittedState], bool],
    timeout_s: float,
    absent: GatewayError,
    late: GatewayError,
) -> None:
    facts = server_facts(connection)
    identity = slot_identity(facts, settings)
    deadline = time.monotonic() + timeout_s
    seen = time.monotonic()
    while True:
        # Repeated, because a gateway that is just starting does not listen yet.
        if not facts.in_recovery:  # on a standby the gateway polls by itself
            name = channel_of(settings.source.slot)
            connection.execute("SELECT pg_catalog.pg_notify(%s, %s)", (name, saying))
        asked = time.monotonic()
        while time.monotonic() - asked < _ASK_AGAIN_S:
            if done(read_progress(settings.kafka, settings.topics.progress, identity)):
                return
            if _is_running(connection, settings.source.slot):
                seen = time.monotonic()
            elif time.monotonic() - seen > _ABSENT_S:
                raise absent
            if time.monotonic() >= deadline:
                raise late
            time.sleep(_LOOK_S)


def _is_running(connection: psycopg.Connection, slot: str) -> bool:
    """Whether a gateway streams, or copies tables for definitions that come into force."""
    return reads_slot(connection, slot) or has_sessions(connection, slot)


def reads_slot(connection: psycopg.Connection, slot: str) -> bool:
    """Whether a gateway reads the replication slot."""
    status = slot_status(connection, slot)
    return status is not None and status.active
