"""``pgsluice slot drop``: start over with the next run.

The watermark is removed first, then the slot: after a failure in between, the next run finds a slot
with a watermark of 0, regards it as that of an interrupted start, and starts over, with the same
result.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Final

import psycopg

from gateway.commands.takeover import take_over_from
from gateway.config import Settings
from gateway.core.display import say
from gateway.core.errors import AccessError, SlotBusyError, SlotError, UsageError
from gateway.core.lsn import ZERO_LSN
from gateway.core.watermark import Watermark
from gateway.runtime.planning.plan import read_definitions
from gateway.runtime.planning.setup import commit_claim, make_sink, slot_identity
from gateway.sink.own_topics.owners import read_owners
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import describe_topics
from gateway.source.provisioning.own_publications import drop_publications
from gateway.source.session.connection import ServerFacts, connect, server_facts
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import check_owner, slot_status

__all__ = ["drop"]

_FREE_S: Final = 5.0
_LOOK_S: Final = 0.2


def drop(
    settings: Settings,
    *,
    force: bool = False,
    system_identifier: str | None = None,
    yes: bool = False,
) -> int:
    """Forget the watermark, drop the slot and the gateway's own publications.

    Topics and tables are left as they are: the next initial copy begins with a record that empties
    them. For what this role may not drop, the statements are printed.

    Returns:
        1 if the slot is still there, or if the operator has declined; else 0.

    Args:
        settings: Settings of the gateway.
        force: Whether to drop a slot of which Kafka has no record, too.
        system_identifier: Server that was replaced: only forget its watermark, and take over the
            topics that were written from it.
        yes: Whether to ask nothing.

    Raises:
        UsageError: it has to ask, and there is no terminal.
        SlotError: the slot is another program's, or cannot be proven to be this gateway's.
        SlotBusyError: a gateway reads it.
        TransientError: a server cannot be reached.
    """
    name = settings.source.slot
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        if system_identifier is not None:
            return _replace_server(settings, facts, system_identifier, yes=yes)
        status = slot_status(connection, name)
        if status is not None:
            check_owner(status, facts.database)
            if not _is_free_soon(connection, name):
                raise SlotBusyError(
                    f'replication slot "{name}" is being read (process {status.active_pid} of the '
                    "server)",
                    hint="stop the gateway, and those that stand by, before the slot is dropped",
                )
        known = _watermark(settings, facts)
        if status is not None and known is None and not force:
            raise SlotError(
                f'Kafka has no record that replication slot "{name}" belongs to this gateway',
                hint="check [kafka] and [topics] progress; `pgsluice slot drop --force` drops a "
                "slot that nobody needs any more",
            )
        forgotten = known is not None and known.end_lsn > ZERO_LSN
        if status is not None or forgotten:
            say(f'replication slot "{name}" of database {facts.database}')
            if not yes and not _is_confirmed(
                "Drop it, the gateway's publications and the watermark? All tables are copied "
                "again by the next run."
            ):
                return _declined()
        if forgotten:
            _forget(settings, facts)
        kept = _drop_slot(settings) if status is not None else None
        dropped, refused = drop_publications(connection, prefix=name)
    if kept is not None:
        refused.insert(0, kept)
    for line in (
        f"watermark of slot {name} forgotten" if forgotten else "there was no watermark",
        *([f"slot {name} dropped"] if status is not None and kept is None else ()),
        *([f"there was no slot {name}"] if status is None else ()),
        *dropped,
    ):
        say(line)
    if refused:
        say("not dropped, let their owner or a superuser run this:")
    for statement, why in refused:
        say(f"{statement}  -- {why}")
    return 0 if kept is None else 1


def _drop_slot(settings: Settings) -> tuple[str, str] | None:
    """Drop the slot; return the statement for another role and the reason if this one may not."""
    name = settings.source.slot
    try:
        replication = ReplicationConnection(settings.source.dsn)
        try:
            replication.drop_slot(name, wait=True)
        finally:
            replication.close()
    except AccessError as error:
        # A slot's name is of a-z, 0-9 and underscores.
        return f"SELECT pg_drop_replication_slot('{name}');", error.message
    return None


def _is_confirmed(question: str) -> bool:
    """Ask the operator.

    Raises:
        UsageError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "slot drop asks first, and standard input is no terminal",
            hint="with --yes it asks nothing",
        )
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _declined() -> int:
    say("nothing was dropped")
    return 1


def _replace_server(
    settings: Settings, facts: ServerFacts, system_identifier: str, *, yes: bool
) -> int:
    say(f'replication slot "{settings.source.slot}" of server {system_identifier}')
    if not yes and not _is_confirmed(
        "Forget its watermark, and take its topics over? All tables are copied again by the next "
        "run."
    ):
        return _declined()
    other = replace(facts, system_identifier=system_identifier)
    known = _watermark(settings, other)
    names = [
        subscription.name for subscription in read_definitions(settings, masks=False).subscriptions
    ]
    with Registry(settings.registry) as registry:
        left = slot_identity(other, settings).key
        owners = {
            name: owner
            for name, owner in read_owners(settings.kafka, registry, names).items()
            if owner.writer is not None and owner.writer.owner == left
        }
        take_over_from(settings, facts, registry, owners)
    for name in owners:
        say(f"subscription {name}: taken over")
    if known is None and owners:
        return 0
    if known is None:
        raise SlotError(
            f"Kafka has no watermark of a server {system_identifier} for database "
            f'{facts.database} and slot "{settings.source.slot}"',
            hint="the message of `pgsluice run` names the system identifier",
        )
    _forget(settings, other)
    say(f"watermark of server {system_identifier} forgotten")
    return 0


def _watermark(settings: Settings, facts: ServerFacts) -> Watermark | None:
    """Read the progress of this slot from Kafka, without a claim on it."""
    if not describe_topics(settings.kafka, [settings.topics.progress]):
        return None
    identity = slot_identity(facts, settings)
    return read_progress(settings.kafka, settings.topics.progress, identity).watermark


def _is_free_soon(connection: psycopg.Connection, name: str) -> bool:
    """Whether no process reads it; the server notices the end of a gateway with a delay."""
    deadline = time.monotonic() + _FREE_S
    while (status := slot_status(connection, name)) is not None and status.active:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _forget(settings: Settings, facts: ServerFacts) -> None:
    """Commit a watermark of 0, as before a first start."""
    with Registry(settings.registry) as registry:
        sink = make_sink(settings, facts, registry)
        try:
            sink.open()
            commit_claim(sink, facts.timeline, "")
        finally:
            sink.close(settings.limits.shutdown_timeout_s)
