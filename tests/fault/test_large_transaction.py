"""A transaction much larger than the memory that it may take, or than Kafka's time for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

MakeScene = Callable[..., Scene]
ROWS = 200_000
FRAMES = ROWS * 200
"""Bytes that the frames of these rows would take, at least."""


def resident(pid: int, field: str) -> int:
    """VmRSS or VmHWM, its peak, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no {field}")


@pytest.mark.parametrize("streaming", ["on", "off"])
def test_a_large_transaction_passes_in_little_memory_and_is_one_kafka_transaction(
    scene: MakeScene, database: Database, streaming: str
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE large (a int PRIMARY KEY, b text)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE large; CREATE SUBSCRIPTION {s} CONNECTION ''"
            f" PUBLICATION p WITH (streaming = {streaming});",
            limits={"max_buffer_bytes": 1 << 20, "max_batch_records": 2_000},
            kafka={"queue.buffering.max.messages": "2000"},
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        connection.execute("INSERT INTO large VALUES (0, 'everything is loaded')")
        wait_until(lambda: len(s.read("large")) == 2, 60, "the first row")
        before, offset = resident(gateway.pid, "VmRSS"), s.uncommitted_end("large")

        connection.execute(
            "INSERT INTO large SELECT i, repeat('x', 150) FROM generate_series(1, %s) i", [ROWS]
        )
        wait_until(lambda: s.markers()[-1]["kind"] == "PROGRESS" and ends(s) == 2, 200, "its END")

        grown = resident(gateway.pid, "VmHWM") - before
        assert gateway.terminate() == 0
        end = [m for m in s.markers() if m["kind"] == "END"][-1]
        assert [t["records"] for t in end["topics"]] == [ROWS]
        # One control record, so one commit.
        assert s.uncommitted_end("large") - offset == ROWS + 1
        assert grown < FRAMES / 2, f"{grown} bytes"


def ends(scene: Scene) -> int:
    return sum(m["kind"] == "END" for m in scene.markers())


def test_a_transaction_that_does_not_fit_is_an_error_that_names_it_and_both_settings(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE large (a int PRIMARY KEY, b text)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE large;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            # A producer so slow that the broker, which looks every ten seconds, ends it.
            limits={"max_batch_records": 50},
            kafka={
                "transaction.timeout.ms": "1000",
                "linger.ms": "500",
                "queue.buffering.max.messages": "100",
            },
        )
        s.run_to("0/1")
        row = connection.execute(
            "INSERT INTO large SELECT i, repeat('x', 300) FROM generate_series(1, 10000) i"
            " RETURNING pg_current_xact_id()::text"
        ).fetchone()
        assert row is not None

        ended = s.cli("run", "--endpos", current_lsn(connection))

        assert ended.code == 1, ended.err
        error = ended.err[ended.err.index("pgsluice: ") :]
        assert f"transaction {row[0]} (10001 messages, " in error
        assert "transaction.timeout.ms" in error
        assert "transaction.max.timeout.ms" in error
