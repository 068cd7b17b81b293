"""``pgsluice status``: state of slot, watermark and tables, and problems."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gateway.config import Settings
from gateway.core.display import say
from gateway.core.errors import AccessError, GatewayError, ProtocolError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.masks import without_masks
from gateway.definitions.model import Definitions
from gateway.definitions.server import SUFFIXES
from gateway.monitor.page.texts import date_time
from gateway.monitor.status import (
    KAFKA,
    SOURCE,
    Severity,
    Status,
    TableStatus,
    of_table,
    table_moves,
    tables_of,
)
from gateway.observe.moving import MovingTable
from gateway.runtime.planning.plan import read_definitions
from gateway.runtime.planning.setup import slot_identity
from gateway.runtime.planning.topics import muted_subscriptions
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.progress import read_progress, read_slots
from gateway.sink.topics.topics import describe_topics
from gateway.source.catalog.tables import estimated_rows
from gateway.source.provisioning.publication_state import read_existing
from gateway.source.session.blockers import Wait, waits
from gateway.source.session.connection import ServerFacts, connect, server_facts, wal_flush_lsn
from gateway.source.session.server_support import may_not_replicate
from gateway.source.stream.slot import SlotStatus, slot_status
from gateway.subselects.moves.standing import MoveStanding, committed_standings
from gateway.subselects.moves.state import read_back

__all__ = ["read_status", "show_status"]

_CODES: Final = {None: 0, Severity.ACT: 1, Severity.WAIT: 75}


def show_status(
    gateways: Sequence[Settings],
    *,
    as_json: bool = False,
    every_s: float | None = None,
) -> int:
    """Print the status, one ``name: value`` a line or as one JSON object; return the exit code.

    0: a gateway reads the slot, and all tables are copied; 75: a transient problem; 1: a person
    must act. The code is the worst of all groups.

    Args:
        gateways: Settings of the gateways, one for each group.
        as_json: One object on one line for each, with the same names as at ``/status``.
        every_s: Print it again and again, until interrupted.

    Raises:
        FatalError: the settings cannot work.
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
        _print([read_status(settings) for settings in gateways], as_json=as_json)


def read_status(settings: Settings) -> Status:
    """Ask PostgreSQL and Kafka; when one is away, the other is shown."""
    failed: dict[str, GatewayError] = {}
    source: _Source | None = None
    known: CommittedState | None = None
    try:
        source = _read_source(settings)
    except (TransientError, AccessError) as error:
        failed[SOURCE] = error
    try:
        known = _read_kafka(settings, source)
    except (TransientError, AccessError) as error:
        failed[KAFKA] = error
    errors = (None if source is None else may_not_replicate(source.facts), *failed.values())
    watermark = None if known is None else known.watermark
    file = None if watermark is None else _read_file(settings)
    in_force = "" if watermark is None else watermark.definitions
    estimates = {} if source is None else source.estimates
    forgotten = watermark is not None and watermark.end_lsn == ZERO_LSN
    last = None if watermark is None else watermark.last
    copies = () if watermark is None else watermark.copies
    return Status(
        settings.source.slot,
        None if source is None else source.slot,
        _server_lsn(source, watermark),
        None if watermark is None else watermark.end_lsn,
        tables_of(
            copies,
            lambda c: estimates.get((c.schema, c.table)),
            () if known is None else _moving(copies, known.parts.get("moves", {})),
        ),
        () if source is None else source.waits,
        refusal=None if watermark is None else watermark.refusal,
        away={name: error.message for name, error in failed.items()},
        denied={e.message: e.hint or "" for e in errors if isinstance(e, AccessError)},
        muted={} if file is None else _muted(settings, file),
        publications=source.publications if source is not None and forgotten else (),
        file_differs=file is not None and not forgotten and _differs(settings, file, in_force),
        last_change=None if last is None else last.committed_at,
    )


def _moving(copies: Sequence[CopyState], records: Mapping[str, bytes]) -> list[MovingTable]:
    """Return the tables whose rows move, by the committed state of their moves."""
    by_oid: dict[str, dict[str, bytes]] = {}
    for name, data in records.items():
        by_oid.setdefault(name.partition("/")[0], {})[name] = data
    found: dict[tuple[str, int], MoveStanding] = {}
    for oid in {copy.oid for copy in copies if f"{copy.oid}" in by_oid}:
        with suppress(ProtocolError):  # the gateway says so, and copies the table again
            for each in committed_standings(oid, read_back(oid, by_oid[f"{oid}"])):
                found[each.subscription, oid] = each
    return [
        MovingTable(*of_table(copy), standing.since, standing.unsettled, standing.moved_rows)
        for copy in copies
        if (standing := found.get((copy.subscription, copy.oid))) is not None
    ]


def _server_lsn(source: _Source | None, watermark: Watermark | None) -> Lsn | None:
    """Return the server's position, which was read before a watermark that a gateway commits."""
    if source is None:
        return None
    if watermark is None or source.slot is None or not source.slot.active:
        return source.server_lsn
    return max(source.server_lsn, watermark.end_lsn)


def _read_file(settings: Settings) -> Definitions | None:
    """Return the definitions in the file, without masks if their key is missing.

    None if they cannot be read.
    """
    for masks in (True, False):
        with suppress(GatewayError):
            return read_definitions(settings, masks=masks)
    return None


def _differs(settings: Settings, file: Definitions, in_force: str) -> bool:
    """Whether the file is another than that of the fingerprint `in_force`, as far as is known."""
    if settings.columns.masks and not file.masks:
        in_force = without_masks(in_force)
    return in_force not in ("", file.fingerprint)


def _muted(settings: Settings, definitions: Definitions) -> dict[str, str]:
    """Return the subscriptions for which nothing can be published, and why, as far as is known."""
    try:
        return muted_subscriptions(settings, (s.name for s in definitions.subscriptions))
    except GatewayError:
        return {}


@dataclass(frozen=True, slots=True)
class _Source:
    """Return the state from PostgreSQL; `publications` are the gateway's own, without a slot."""

    facts: ServerFacts
    slot: SlotStatus | None
    server_lsn: Lsn
    estimates: Mapping[tuple[str, str], int]
    waits: Sequence[Wait]
    publications: Sequence[str]


def _read_source(settings: Settings) -> _Source:
    name = settings.source.slot
    with connect(settings.source.dsn) as connection:
        slot = slot_status(connection, name)
        own = [name + suffix for suffix in SUFFIXES]
        return _Source(
            server_facts(connection),
            slot,
            wal_flush_lsn(connection),
            estimated_rows(connection),
            waits(connection, name),
            sorted(read_existing(connection, own)) if slot is None else (),
        )


def _read_kafka(settings: Settings, source: _Source | None) -> CommittedState | None:
    """Return Kafka's state of the slot or, without the server, of the only one of this name."""
    kafka, topic = settings.kafka, settings.topics.progress
    if not describe_topics(kafka, [topic]):
        return None
    if source is not None:
        # A gateway that was killed leaves its Kafka transaction open, until another one starts.
        return read_progress(kafka, topic, slot_identity(source.facts, settings), settled=False)
    found = read_slots(kafka, topic, settings.source.slot)
    return found[0] if len(found) == 1 else None


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
    for name, why in status.away.items():
        yield f"{name}: does not answer, {why}" if name in status.silent else f"{name}: {why}"
    if SOURCE in status.away:
        yield "slot state: not known"
    elif status.slot is None:
        yield "slot state: does not exist"
    else:
        active = _reader(status.slot) if status.slot.active else "inactive"
        yield f"slot state: {active}, WAL {status.slot.wal_status}"
        if status.retained is not None:
            yield f"WAL kept for the slot: {status.retained} bytes"
        if status.left is not None:
            yield f"WAL until the slot may be lost: {max(0, status.left)} bytes"
    if status.server_lsn is not None:
        yield f"server is at: {format_lsn(status.server_lsn)}"
    if KAFKA in status.away:
        yield "watermark: not known"
    elif not status.durable_lsn:
        yield "watermark: none"
    else:
        yield f"watermark: {format_lsn(status.durable_lsn)}"
        if status.lag_bytes is not None:
            yield f"behind: {status.lag_bytes} bytes of WAL"
    if status.last_change is not None:
        yield f"last change: {date_time(status.last_change)}"
    if status.refusal is not None:
        yield "definitions: the changed ones are refused, the old ones are in force"
    for table in status.tables:
        yield f"copy of {table.subscription}: {table.table}: {_how_far(table)}"
    for problem in status.problems():
        urgent = "to do" if problem.severity is Severity.ACT else "for now"
        yield f"{urgent}: {problem.message}"
        if problem.hint is not None:
            # A hint can have statements, each in a line of its own.
            yield from (f"  -> {line}" for line in problem.hint.split("\n") if line)


def _reader(slot: SlotStatus) -> str:
    text = f"read by pid {slot.active_pid}"
    if slot.reader:
        text += f", {slot.reader}"
    return text if slot.reading_since is None else f"{text}, since {date_time(slot.reading_since)}"


def _how_far(table: TableStatus) -> str:
    text = table.state
    if table.state == "copying":
        text += f", {table.read} rows read"
        if table.estimate is not None:
            text += f" of about {table.estimate}"
        text += f", {table.published} published"
    if table.asked is not None:
        text += f", to be copied again: {table.asked or 'all of it'}"
    if moves := table_moves(table):
        text += f", {moves}"
    return f"{text}, {table.reason}" if table.reason else text
