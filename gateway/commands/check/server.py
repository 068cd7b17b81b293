"""Findings about the source: its settings, the slot, prepared transactions, event triggers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg

from gateway.commands.check.findings import Finding, Severity, fine
from gateway.config import Settings
from gateway.definitions.model import Definitions
from gateway.monitor.status import retention_problem
from gateway.source.provisioning.trigger_installation import find_installation
from gateway.source.session.connection import ServerFacts, wal_flush_lsn
from gateway.source.session.server_support import untested
from gateway.source.stream.slot import SlotStatus, check_slot, slot_status

__all__ = ["event_trigger_findings", "server_findings", "slot_findings"]


def server_findings(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """Warn of an untested release, and of WAL that may fill the server's disk."""
    if settings.source.allow_untested and (problem := untested(facts)) is not None:
        yield Finding(Severity.WARNING, f"source: {problem.message}")
    if facts.max_slot_wal_keep_size == "-1":
        yield Finding(
            Severity.WARNING,
            "source: max_slot_wal_keep_size is not set: a gateway that is down for long fills "
            "the server's disk with WAL",
            "set it to what the disk can spare; a slot that lags by more is lost and the "
            "tables are copied again",
        )


def slot_findings(
    connection: psycopg.Connection, settings: Settings, facts: ServerFacts
) -> Iterator[Finding]:
    """Yield whether there is a slot, how close it is to losing WAL, and what holds it back.

    Raises:
        SlotError: the slot cannot be used.
    """
    status = slot_status(connection, settings.source.slot)
    yield from _prepared_findings(connection, status)
    if status is None:
        yield fine(f"slot: {settings.source.slot} will be created at the first start")
        return
    check_slot(status, facts.database)
    yield fine(f"slot: {settings.source.slot} exists, WAL {status.wal_status}")
    kept = None
    if status.restart_lsn is not None:
        kept = max(0, wal_flush_lsn(connection) - status.restart_lsn)
    near = retention_problem(status, kept)
    if near is not None:
        yield Finding(Severity.WARNING, f"slot: {near.message}", near.hint)


# Every database's: the slot keeps WAL from the first record of any of them.
_PREPARED: Final = """
SELECT gid, database::pg_catalog.text,
    pg_catalog.to_char(prepared, 'YYYY-MM-DD HH24:MI:SS TZ'), pg_catalog.count(*) OVER ()
FROM pg_catalog.pg_prepared_xacts ORDER BY prepared LIMIT 5
"""


def _prepared_findings(
    connection: psycopg.Connection, status: SlotStatus | None
) -> Iterator[Finding]:
    """Warn of prepared transactions, the oldest first: as long as they last, WAL is kept."""
    for gid, database, since, count in connection.execute(_PREPARED):
        if status is None:
            effect = "the slot cannot be created before it ends"
        elif status.two_phase and status.database == database:
            effect = "the slot is not confirmed beyond it, and keeps all WAL since"
        else:
            effect = "the slot keeps all WAL since it began"
        yield Finding(
            Severity.WARNING,
            f"slot: transaction {gid!r} of database {database} is prepared since {since} (one of "
            f"{count}): {effect}",
            "COMMIT PREPARED or ROLLBACK PREPARED it, unless its coordinator is about to",
        )


def event_trigger_findings(
    connection: psycopg.Connection, definitions: Definitions
) -> Iterator[Finding]:
    """Yield the place from which an altered publication counts, and faults of event triggers."""
    installation = find_installation(connection)
    if installation is not None and installation.problems:
        yield Finding(
            Severity.ERROR,
            f"event triggers: {installation.problems[0]}"
            + (
                "; their messages are ignored, and other roles may gain rights by them"
                if installation.key is None
                else ""
            ),
            "run the script in docs/event-triggers.md of this release as the superuser who owns "
            "them, or DROP SCHEMA pgsluice CASCADE",
        )
    elif installation is not None and not installation.may_read_key:
        yield Finding(
            Severity.WARNING,
            "event triggers: this role may not read their key, so their messages are ignored",
            "GRANT USAGE ON SCHEMA pgsluice TO the role of source.dsn; GRANT SELECT ON pgsluice.key"
            " TO the role of source.dsn",
        )
    if installation is not None and installation.readers:
        yield Finding(
            Severity.WARNING,
            "event triggers: other roles may read their key, and so write DDL messages that are "
            f"trusted: {', '.join(installation.readers)}",
            "right if they are of other gateways; else REVOKE SELECT ON pgsluice.key FROM them, "
            "from the roles that they are members of, or membership of pg_read_all_data",
        )
    defined = {publication.name for publication in definitions.publications}
    named = sorted({n for s in definitions.subscriptions for n in s.publications} - defined)
    if not named:
        return
    which = ", ".join(named)
    if installation is not None and installation.announces and installation.key is not None:
        yield fine(f"publications {which}: an ALTER takes effect at its LSN")
    else:
        yield Finding(
            Severity.FINE,
            f"publications {which}: while the gateway lags, the latest definition also "
            "applies to earlier changes",
            "event triggers on the source make that exact (PostgreSQL 15 and later): see "
            "docs/event-triggers.md",
        )
