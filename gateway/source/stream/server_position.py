"""WAL position and timeline history of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg

from gateway.core.background import OnWait, keep_waiting
from gateway.core.errors import FatalError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.source.session.connection import server_facts, wal_flush_lsn
from gateway.source.stream.connection import ReplicationConnection

__all__ = ["ServerPosition", "parse_timeline_history", "server_position"]


@dataclass(frozen=True, slots=True)
class ServerPosition:
    """Identity and WAL position of a server.

    Attributes:
        system_identifier: Decimal digits.
        timeline: Current timeline of its WAL.
        wal_end: End of its flushed WAL; on a standby, of its replayed WAL.
        history: LSN at which each ancestor of the timeline was left.
    """

    system_identifier: str
    database: str
    timeline: int
    wal_end: Lsn
    in_recovery: bool = False
    history: Mapping[int, Lsn] = field(default_factory=dict)


def server_position(
    connection: psycopg.Connection, dsn: str, *, on_wait: OnWait = keep_waiting
) -> ServerPosition:
    """Ask the server for its position; the history of its timelines takes a walsender of `dsn`.

    Args:
        connection: Connection to the server.
        dsn: DSN of the server, for the walsender.
        on_wait: Called while waiting for that one.

    Raises:
        TransientError: a connection is gone, or none is free.
        FatalError: the role may not.
    """
    facts = server_facts(connection)
    history: Mapping[int, Lsn] = {}
    if facts.timeline > 1:
        replication = ReplicationConnection(dsn, on_wait=on_wait)
        try:
            history = parse_timeline_history(replication.timeline_history(facts.timeline))
        finally:
            replication.close()
    return ServerPosition(
        facts.system_identifier,
        facts.database,
        facts.timeline,
        wal_flush_lsn(connection),
        facts.in_recovery,
        history,
    )


def parse_timeline_history(text: str) -> dict[int, Lsn]:
    """Return, for each ancestor, the LSN at which it was left.

    A line is a timeline, a tab, the LSN of the switch, a tab and a reason; ``#`` begins a comment.

    Raises:
        FatalError: it cannot be parsed.

    Source: readTimeLineHistory in PostgreSQL's timeline.c.
    """
    history: dict[int, Lsn] = {}
    for line in text.splitlines():
        fields = line.split("#")[0].split(maxsplit=2)
        if not fields:
            continue
        try:
            history[int(fields[0])] = parse_lsn(fields[1])
        except (ValueError, IndexError):
            raise FatalError(
                "the source server's timeline history does not read as one",
                hint="see the newest *.history file in the server's pg_wal folder",
            ) from None
    return history
