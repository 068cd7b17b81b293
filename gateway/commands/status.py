"""``pgsluice status``: where slot, watermark and tables stand, and what is wrong."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gateway.config import Settings
from gateway.display import lines_shown, say
from gateway.errors import TransientError
from gateway.lsn import format_lsn
from gateway.monitor.status import Severity, Status, TableStatus, tables_of
from gateway.records import Watermark
from gateway.runtime.provision import slot_identity
from gateway.sink.progress import read_progress
from gateway.sink.topics import describe_topics
from gateway.source.connection import connect, server_facts, wal_flush_lsn
from gateway.source.running import waits
from gateway.source.slot import slot_status
from gateway.source.tables import estimated_rows

__all__ = ["read_status", "show_status"]

_READ_S: Final = 30.0
_CODES: Final = {None: 0, Severity.ACT: 1, Severity.WAIT: 75}


def show_status(
    gateways: Sequence[Settings],
    *,
    as_json: bool = False,
    every_s: float | None = None,
) -> int:
    """Print it, one ``name: value`` a line or as one JSON object; return the exit code.

    0: a gateway reads the slot, and all tables are copied; 75: not so, but that may pass; 1: a
    person must act. The worst of all groups.

    Args:
        gateways: Which: of each group one.
        as_json: One object on one line for each, with the same names as at ``/status``.
        every_s: Print it again and again, until interrupted.

    Raises:
        TransientError: PostgreSQL or Kafka cannot be reached; not after the first time.
    """
    statuses = [read_status(settings) for settings in gateways]
    _print(statuses, as_json=as_json)
    if every_s is None:
        found = [problem.severity for status in statuses for problem in status.problems()[:1]]
        return _CODES[max(found, default=None)]
    while True:
        time.sleep(every_s)
        if not as_json:
            say()
        try:
            _print([read_status(settings) for settings in gateways], as_json=as_json)
        except TransientError as error:
            print(f"pgsluice: {lines_shown(error)}", file=sys.stderr)


def read_status(settings: Settings) -> Status:
    """Ask PostgreSQL and Kafka.

    Raises:
        TransientError: one of them cannot be reached.
    """
    name, topic = settings.source.slot, settings.topics.progress
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        slot = slot_status(connection, name)
        server_lsn = wal_flush_lsn(connection)
        estimates = estimated_rows(connection)
        waiting = waits(connection, name)
    watermark: Watermark | None = None
    if describe_topics(settings.kafka, [topic]):
        identity = slot_identity(facts, settings)
        watermark = read_progress(settings.kafka, topic, identity, _READ_S).watermark
    if watermark is None:
        return Status(name, slot, server_lsn, None, waits=waiting)
    tables = tables_of(watermark.copies, lambda c: estimates.get((c.schema, c.table)))
    return Status(name, slot, server_lsn, watermark.end_lsn, tables, waiting)


def _print(statuses: Iterable[Status], *, as_json: bool) -> None:
    for number, status in enumerate(statuses):
        if as_json:
            say(json.dumps(status.as_json(), ensure_ascii=False))
            continue
        if number > 0:
            say()
        for line in _lines(status):
            say(line)


def _lines(status: Status) -> Iterator[str]:
    yield f"slot: {status.name}"
    if status.slot is None:
        yield "slot state: does not exist"
    else:
        active = f"read by pid {status.slot.active_pid}" if status.slot.active else "inactive"
        yield f"slot state: {active}, WAL {status.slot.wal_status}"
        if status.retained is not None:
            yield f"WAL kept for the slot: {status.retained} bytes"
        if status.left is not None:
            yield f"WAL until the slot may be lost: {max(0, status.left)} bytes"
    yield f"server is at: {format_lsn(status.server_lsn)}"
    if status.durable_lsn is None:
        yield "watermark: none"
    else:
        yield f"watermark: {format_lsn(status.durable_lsn)}"
        yield f"behind: {status.behind} bytes of WAL"
    for table in status.tables:
        yield f"copy of {table.subscription}: {table.table}: {_how_far(table)}"
    for problem in status.problems():
        urgent = "to do" if problem.severity is Severity.ACT else "for now"
        yield f"{urgent}: {problem.message}"
        if problem.hint is not None:
            yield f"  -> {problem.hint}"


def _how_far(table: TableStatus) -> str:
    text = table.state
    if table.state == "copying":
        text += f", {table.rows} rows"
        if table.estimate is not None:
            text += f" of about {table.estimate}"
    if table.asked is not None:
        text += f", to be copied again: {table.asked or 'all of it'}"
    return f"{text}, {table.reason}" if table.reason else text
