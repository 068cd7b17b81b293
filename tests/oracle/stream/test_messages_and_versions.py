"""Logical messages, and the protocol version that each server speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


@pytest.fixture
def scene(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(options: str, **extra: Any) -> Scene:
        definitions = (
            "CREATE PUBLICATION p FOR TABLE t;"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p WITH ({options});"
        )
        slot = f"gw_{database.name}"
        made.append(Scene(tmp_path, database.dsn, kafka, registry, slot, definitions, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("postgres_major", "said"),
    [
        (14, "protocol=2 streaming=on two_phase=False"),
        (15, "protocol=3 streaming=on two_phase=True"),
        (16, "protocol=4 streaming=parallel two_phase=True"),
        (18, "protocol=4 streaming=parallel two_phase=True"),
    ],
    indirect=["postgres_major"],
)
def test_the_highest_version_of_the_server_is_spoken_and_said(
    scene: Callable[..., Scene], database: Database, said: str
) -> None:
    two_phase = "on" if "two_phase=True" in said else "off"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute(
            f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'".encode()
        )
        s = scene(f"streaming = parallel, two_phase = {two_phase}")
        s.run_to("0/1")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t SELECT i, repeat('x', 90) FROM generate_series(1, 900) i")
        connection.execute("SAVEPOINT s")
        connection.execute("INSERT INTO t SELECT i, 'gone' FROM generate_series(1001, 1900) i")
        connection.execute("ROLLBACK TO s")
        connection.execute("COMMIT" if two_phase == "off" else "PREPARE TRANSACTION 'g'")
        if two_phase == "on":
            connection.execute("COMMIT PREPARED 'g'")
        ended = s.run_to(current_lsn(connection))

        assert said in ended.err
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
        # Until version 15 a process of its own counts, and publishes twice a second.
        streamed = "SELECT stream_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = %s"
        wait_until(lambda: value_of(connection, streamed, s.slot), 60, "a streamed transaction")


def test_messages_of_the_chosen_prefixes_are_published_those_outside_transactions_at_once(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        s = scene("streaming = on", messages={"prefixes": ["ours"]})
        gateway = s.project.start()
        gateway.wait_until_doing("streaming")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("SELECT pg_logical_emit_message(true, 'ours', 'inside')")
        connection.execute("SELECT pg_logical_emit_message(true, 'theirs', 'unseen')")
        other.execute("SELECT pg_logical_emit_message(false, 'ours', 'at once')")
        other.execute("SELECT pg_logical_emit_message(false, 'theirs', 'unseen')")
        topic = f"{s.slot}.message"

        def contents() -> list[bytes]:
            return [r.value["content"] for r in s.reader.read(topic) if r.value is not None]

        # Written out by the walwriter, as nobody commits.
        wait_until(lambda: contents() == [b"at once"], 60, "the message outside a transaction")
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("SELECT pg_logical_emit_message(true, 'ours', 'inside')")
        connection.execute("COMMIT")
        wait_until(lambda: len(contents()) == 2, 60, "the message inside a transaction")
        assert gateway.terminate() == 0

    standalone, inside = s.reader.read(topic)
    assert standalone.headers["seq"] == "0"
    assert standalone.headers["lsn"] == standalone.headers["commit_lsn"]
    assert "xid" not in standalone.headers
    assert inside.headers["seq"] == "2"
    assert contents() == [b"at once", b"inside"]
