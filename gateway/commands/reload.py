"""``pgsluice reload``: let a running gateway adopt the definitions in the file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from gateway.commands.asking import READING, ask, reads_slot
from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.core.display import said_if_slow, say
from gateway.core.errors import ConfigError, FatalError, SlotError, TransientError
from gateway.core.watermark import Refusal, Watermark
from gateway.definitions.changes import copy_states
from gateway.definitions.masks import have_same_masks
from gateway.definitions.model import Definitions, Plan
from gateway.monitor.health import refused
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.setup import slot_identity, with_topics
from gateway.runtime.planning.topics import unusable_topic_faults
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.progress import read_progress
from gateway.source.session.connection import connect, server_facts

__all__ = ["reload"]


def reload(settings: Settings, *, timeout_s: float) -> int:
    """Ask the gateway to reload, and wait until the definitions are in force and all copies done.

    Raises:
        DefinitionError, FilterError, ...: the definitions are refused, as by `check`; the gateway
            is not asked.
        ConfigError: masks have changed, which a gateway reads when it starts.
        FatalError: the gateway refuses them, with the reason.
        SlotError: no gateway runs, or it has ended meanwhile. The next `run` adopts the definitions
            by itself.
        TransientError: not in force within `timeout_s`; the gateway goes on trying.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        with said_if_slow(READING):
            facts = server_facts(connection)
            identity = slot_identity(facts, settings)
            known = read_progress(settings.kafka, settings.topics.progress, identity).watermark
            in_force = "" if known is None else known.definitions
            if in_force and not have_same_masks(in_force, definitions.fingerprint):
                raise ConfigError(
                    "differ from those in force",
                    key="columns.masks",
                    hint="settings are read at a start: restart the gateway, which puts a changed "
                    "definitions file into force, too",
                )
            plan = read_plan(settings, connection, definitions, known)
            if settings.definitions.on_table_error == "hold":
                # The gateway holds these tables as well, so that nobody waits for their copies.
                states = () if known is None else known.copies
                kept = with_topics(settings, plan, states, settings.topics.names)
                if faults := unusable_topic_faults(kept, plan):
                    plan = read_plan(settings, connection, definitions, known, faults=faults)
            # Building the routes compiles every filter and every schema.
            routes_of(connection, plan, facts, settings, CollectedSchemas())
        ask(
            settings,
            connection,
            "",
            _Answer(
                definitions,
                plan,
                None if known is None else known.refusal,
                partial(reads_slot, connection, settings.source.slot),
            ),
            timeout_s,
            waits_for="put the definitions into force and to copy what is new",
            absent=SlotError(
                f'no gateway reads replication slot "{settings.source.slot}"',
                hint="`pgsluice run` applies changed definitions when it starts",
            ),
            late=TransientError(
                f"the definitions are not in force after {timeout_s:.0f} s",
                hint="the gateway goes on; its log says what it waits for, and `pgsluice status` "
                "how far the copies are",
            ),
        )
    print(f"definitions {definitions.fingerprint} are in force")
    return 0


class _Answer:
    """Whether the definitions are in force, by what the gateway has committed.

    Args:
        before: Refusal that was in force before the request.
        is_streaming: Whether it reads the slot: it does not while new definitions come into force.
    """

    def __init__(
        self,
        definitions: Definitions,
        plan: Plan,
        before: Refusal | None,
        is_streaming: Callable[[], bool],
    ) -> None:
        self._definitions = definitions
        self._plan = plan
        self._before = before
        self._is_streaming = is_streaming

    def __call__(self, found: CommittedState) -> bool:
        """Return whether the definitions are in force.

        Raises:
            FatalError: they are refused.
        """
        refusal = None if found.watermark is None else found.watermark.refusal
        if refusal is not None and refusal != self._before:
            raise FatalError(f"{refused(refusal)}; the old ones stay in force", hint=refusal.hint)
        if not _is_in_force(found.watermark, self._definitions, self._plan):
            return False
        if not self._is_streaming():
            return False
        for table in self._plan.held:
            say(
                f"table {table.schema}.{table.table} of subscription {table.subscription} is held: "
                f"{table.reason}",
                to=sys.stderr,
            )
        return True


def _is_in_force(watermark: Watermark | None, definitions: Definitions, plan: Plan) -> bool:
    if watermark is None:
        return False
    states = copy_states(plan, watermark.copies, reconcile=True)
    return watermark.definitions == definitions.fingerprint and all(
        state.state in ("ready", "missing", "held") for state in states
    )
