"""``pgsluice status``: where slot, watermark and copies stand, and how far behind."""

from __future__ import annotations

from gateway.config import Settings
from gateway.lsn import format_lsn
from gateway.records import Watermark
from gateway.runtime.provision import slot_identity
from gateway.sink.progress import read_progress
from gateway.sink.topics import describe_topics
from gateway.source.connection import connect, server_facts, wal_flush_lsn
from gateway.source.slot import slot_status
from gateway.source.tables import estimated_rows

__all__ = ["show_status"]


def show_status(settings: Settings) -> int:
    """Print one ``name: value`` a line.

    Raises:
        TransientError: PostgreSQL or Kafka cannot be reached.
    """
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        status = slot_status(connection, settings.source.slot)
        current = wal_flush_lsn(connection)
        estimates = estimated_rows(connection)
    watermark: Watermark | None = None
    if describe_topics(settings.kafka, [settings.topics.progress]):
        watermark = read_progress(
            settings.kafka, settings.topics.progress, slot_identity(facts, settings), 30.0
        ).watermark
    print(f"slot: {settings.source.slot}")
    if status is None:
        print("slot state: does not exist")
    else:
        print(f"slot state: {'active' if status.active else 'inactive'}, WAL {status.wal_status}")
        if status.restart_lsn is not None:
            print(f"WAL kept for the slot: {current - status.restart_lsn} bytes")
    print(f"server is at: {format_lsn(current)}")
    if watermark is None:
        print("watermark: none")
        return 0
    print(f"watermark: {format_lsn(watermark.end_lsn)}")
    print(f"behind: {max(0, current - watermark.end_lsn)} bytes of WAL")
    for copy in watermark.copies:
        how_far: str = copy.state
        if copy.state == "copying":
            how_far += f", {copy.progress.rows} rows"
            if (estimate := estimates.get((copy.schema, copy.table))) is not None:
                how_far += f" of about {estimate}"
        if copy.reason:
            how_far += f", {copy.reason}"
        print(f"copy of {copy.subscription}: {copy.schema}.{copy.table}: {how_far}")
    return 0
