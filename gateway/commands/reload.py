"""``pgsluice reload``: let a running gateway take on the definitions as the file has them now."""

from __future__ import annotations

import time
from typing import Final

import psycopg
from psycopg import sql

from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.definitions.changes import copy_states
from gateway.definitions.model import Definitions, Plan
from gateway.errors import SlotError, TransientError
from gateway.records import Watermark
from gateway.runtime.plan import read_definitions, read_plan
from gateway.runtime.provision import slot_identity
from gateway.runtime.reload import channel_of
from gateway.sink.identity import SlotIdentity
from gateway.sink.progress import read_progress
from gateway.source.connection import connect, server_facts
from gateway.source.slot import slot_status

__all__ = ["reload"]

_ASK_AGAIN_S: Final = 5.0
_READ_S: Final = 30.0
_ABSENT_S: Final = 10.0
"""A gateway that starts anew, as it does when definitions take over, is back before that."""


def reload(settings: Settings, *, timeout_s: float) -> int:
    """Ask the gateway to reload, and wait until the definitions are in force and all copies done.

    Raises:
        DefinitionError, FilterError, ...: the definitions are refused, as by `check`; the gateway
            is not asked.
        SlotError: no gateway runs, or it has ended meanwhile. The next `run` takes the definitions
            on by itself.
        TransientError: not in force within `timeout_s`; the gateway goes on trying.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        identity = slot_identity(facts, settings)
        known = read_progress(settings.kafka, settings.topics.progress, identity, _READ_S).watermark
        plan = read_plan(settings, connection, definitions, known)
        # Building the routes compiles every filter and every schema.
        routes_of(connection, plan, facts, settings, CollectedSchemas())
        _wait(connection, settings, identity, definitions, plan, timeout_s)
    print(f"definitions {definitions.fingerprint} are in force")
    return 0


def _wait(
    connection: psycopg.Connection,
    settings: Settings,
    identity: SlotIdentity,
    definitions: Definitions,
    plan: Plan,
    timeout_s: float,
) -> None:
    notify = sql.SQL("NOTIFY {}").format(sql.Identifier(channel_of(settings.source.slot)))
    deadline = time.monotonic() + timeout_s
    seen = time.monotonic()
    while True:
        # Again and again: a gateway that is just starting does not listen yet.
        connection.execute(notify)
        asked = time.monotonic()
        while time.monotonic() - asked < _ASK_AGAIN_S:
            recovered = read_progress(settings.kafka, settings.topics.progress, identity, _READ_S)
            found = recovered.watermark
            if found is not None and _is_in_force(found, definitions, plan):
                return
            if _is_running(connection, settings.source.slot):
                seen = time.monotonic()
            elif time.monotonic() - seen > _ABSENT_S:
                raise SlotError(
                    f'no gateway reads replication slot "{settings.source.slot}"',
                    hint="`pgsluice run` takes changed definitions on when it starts",
                )
            if time.monotonic() >= deadline:
                raise TransientError(
                    f"the definitions are not in force after {timeout_s:.0f} s",
                    hint="the gateway goes on; its log says what it waits for, and `pgsluice "
                    "status` how far the copies are",
                )


def _is_running(connection: psycopg.Connection, slot: str) -> bool:
    """Whether a gateway streams, or copies tables for definitions that are taking over."""
    status = slot_status(connection, slot)
    if status is not None and status.active:
        return True
    row = connection.execute(
        "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database()"
        " AND application_name IN ('pgsluice reload', 'pgsluice copy')"
    ).fetchone()
    return row is not None and row[0] > 0


def _is_in_force(watermark: Watermark, definitions: Definitions, plan: Plan) -> bool:
    states = copy_states(plan, watermark.copies, reconcile=True)
    return watermark.definitions == definitions.fingerprint and all(
        state.state in ("ready", "missing", "held") for state in states
    )
