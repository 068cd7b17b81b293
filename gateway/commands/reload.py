"""``pgsluice reload``: let a running gateway take on the definitions as the file has them now."""

from __future__ import annotations

from gateway.commands.asking import READ_S, ask
from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.definitions.changes import copy_states
from gateway.definitions.model import Definitions, Plan
from gateway.errors import SlotError, TransientError
from gateway.records import Watermark
from gateway.runtime.plan import read_definitions, read_plan
from gateway.runtime.provision import slot_identity
from gateway.sink.progress import read_progress
from gateway.source.connection import connect, server_facts

__all__ = ["reload"]


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
        known = read_progress(settings.kafka, settings.topics.progress, identity, READ_S).watermark
        plan = read_plan(settings, connection, definitions, known)
        # Building the routes compiles every filter and every schema.
        routes_of(connection, plan, facts, settings, CollectedSchemas())
        ask(
            settings,
            connection,
            "",
            lambda found: _is_in_force(found.watermark, definitions, plan),
            timeout_s,
            absent=SlotError(
                f'no gateway reads replication slot "{settings.source.slot}"',
                hint="`pgsluice run` takes changed definitions on when it starts",
            ),
            late=TransientError(
                f"the definitions are not in force after {timeout_s:.0f} s",
                hint="the gateway goes on; its log says what it waits for, and `pgsluice status` "
                "how far the copies are",
            ),
        )
    print(f"definitions {definitions.fingerprint} are in force")
    return 0


def _is_in_force(watermark: Watermark | None, definitions: Definitions, plan: Plan) -> bool:
    if watermark is None:
        return False
    states = copy_states(plan, watermark.copies, reconcile=True)
    return watermark.definitions == definitions.fingerprint and all(
        state.state in ("ready", "missing", "held") for state in states
    )
