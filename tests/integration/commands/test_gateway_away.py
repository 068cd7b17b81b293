"""`status` while something does not answer, after `slot drop`, and of how far a copy was."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, wait_until_slot_is_free

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a > 95);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
NO_KAFKA = {"PGSLUICE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
NO_SOURCE = {"PGSLUICE_SOURCE__DSN": "postgresql://127.0.0.1:1/none"}


def test_status_shows_what_answers_and_what_is_there_after_the_slot_was_dropped(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (b int PRIMARY KEY, a int); ALTER TABLE t REPLICA IDENTITY FULL;"
            "INSERT INTO t SELECT n, n FROM generate_series(1, 100) AS n"
        )
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)

        whole = json.loads(s.cli("status", "--json").out)
        without_kafka = s.cli("status", environment=NO_KAFKA)
        without_source = s.cli("status", environment=NO_SOURCE)
        dropped = s.cli("slot", "drop", "--yes")
        after = s.cli("status")

    (table,) = whole["tables"]
    assert (table["state"], table["rows_read"], table["rows_published"]) == ("ready", 100, 5)
    assert without_kafka.code == 75
    assert "slot state: inactive, WAL reserved" in without_kafka.out
    assert "WAL kept for the slot: " in without_kafka.out
    assert "for now: Kafka does not answer: " in without_kafka.out
    assert without_source.code == 75
    assert "for now: PostgreSQL does not answer: " in without_source.out
    assert f"watermark: {whole['watermark']}" in without_source.out
    assert f"copy of {s.slot}: public.t: ready" in without_source.out
    assert dropped.code == 0, dropped.err
    assert after.code == 75
    assert "watermark: none" in after.out
    assert "the slot and the watermark were dropped; topics keep their records" in after.out


def test_status_shows_what_was_committed_before_a_kafka_transaction_that_is_open(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    """A gateway that was killed in one leaves it open until another one starts."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)
        killed = Producer({"bootstrap.servers": kafka, "transactional.id": f"{s.slot}.killed"})
        killed.init_transactions(60)
        killed.begin_transaction()
        killed.produce(f"{s.slot}.progress", key=b"not readable", value=None, partition=0)
        assert killed.flush(60) == 0

        open_still = s.cli("status")
        killed.abort_transaction(60)

    assert f"copy of {s.slot}: public.t: ready" in open_still.out
    assert "does not answer" not in open_still.out
