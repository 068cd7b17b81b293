"""``pgsluice slot drop``: start over with the next run.

First the watermark goes, then the slot: if it fails in between, the next run finds a slot without a
watermark, which it takes for a copy that died and repeats from the beginning; that is the same.
"""

from __future__ import annotations

import select
import sys

from gateway.config import Settings
from gateway.errors import FatalError
from gateway.lsn import ZERO_LSN
from gateway.provision import make_sink
from gateway.records import Batch, Watermark
from gateway.sink.registry import Registry
from gateway.sink.topics import describe_topics
from gateway.source.connection import ServerFacts, connect, server_facts
from gateway.source.publications import drop_publications
from gateway.source.replication import OUTPUT_PLUGIN, ReplicationConnection
from gateway.source.slot import check_slot, slot_status

__all__ = ["drop"]


def drop(settings: Settings) -> int:
    """Forget the watermark, drop the slot and the gateway's own publications.

    A gateway that is running is fenced by this and ends. Topics and tables are left as they are:
    the next initial copy begins with a record that empties them.

    Publications that this role may not drop are left, and named.

    Raises:
        SlotError: the slot is another program's.
        TransientError: a server cannot be reached, or the slot stays in use.
    """
    name = settings.source.slot
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        status = slot_status(connection, name)
        if status is not None and (
            status.plugin != OUTPUT_PLUGIN or status.database != facts.database
        ):
            check_slot(status, facts.database)
        forgotten = _forget_watermark(settings, facts)
        if status is not None:
            replication = ReplicationConnection(settings.source.dsn)
            try:
                replication.drop_slot(name, wait=True)
            finally:
                replication.close()
        try:
            dropped = drop_publications(connection, prefix=name)
        except FatalError as error:
            # Its owner has made them; they cost nothing, and the next run can use them.
            dropped = [f"publications were left: {error.message}"]
    for line in (
        f"watermark of slot {name} forgotten" if forgotten else "there was no watermark",
        f"slot {name} dropped" if status is not None else f"there was no slot {name}",
        *dropped,
    ):
        print(line, file=sys.stdout)
    return 0


def _forget_watermark(settings: Settings, facts: ServerFacts) -> bool:
    """Commit a watermark of 0, which is none; fences a gateway that runs."""
    topics = [settings.topics.progress, settings.topics.totals]
    if len(describe_topics(settings.kafka, topics)) < len(topics):
        return False
    sink = make_sink(settings, facts, Registry(settings.registry))
    try:
        if sink.open().watermark is None:
            return False
        sink.submit(Batch([], Watermark(ZERO_LSN, facts.timeline, "", ())))
        while sink.busy:
            select.select([sink.fileno()], [], [], 1.0)
            sink.collect()
    finally:
        sink.close(settings.limits.shutdown_timeout_s)
    return True
