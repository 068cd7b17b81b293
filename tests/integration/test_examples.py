"""examples/ do what they say, against a real gateway's topics."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_scene import Scene, current_lsn
from tests.support.servers import Database

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LARGE = "repeat('x', 20000)"


def test_topic_to_sqlite_keeps_a_table_equal(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    file = tmp_path / "copy.db"

    def follow(s: Scene) -> list[tuple[Any, ...]]:
        """Run it to the end of the topic; the rows that it has then."""
        arguments = [kafka, registry, s.topic("t"), str(file), "--to-end"]
        subprocess.run(
            [sys.executable, str(EXAMPLES / "topic_to_sqlite.py"), *arguments],
            check=True,
            timeout=240,
        )
        with closing(sqlite3.connect(file)) as db:
            found = [json.loads(row) for (row,) in db.execute("SELECT row FROM row")]
        return sorted(((row["a"], row["b"], row["c"]) for row in found), key=repr)

    def source(s: Scene) -> list[tuple[Any, ...]]:
        return s.source_rows("SELECT a, b, c FROM t WHERE a > 5")

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text, c int)")
        connection.execute("ALTER TABLE t ALTER COLUMN b SET STORAGE EXTERNAL")
        connection.execute(f"INSERT INTO t SELECT n, {LARGE}, n FROM generate_series(1, 12) n")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        s.run_to("0/1")
        assert follow(s) == source(s)

        for statement in (
            "UPDATE t SET c = -c WHERE a = 7",  # b is not in the stream
            "UPDATE t SET a = 80 WHERE a = 8",  # neither is it with another key
            "UPDATE t SET a = -1 WHERE a = 9; DELETE FROM t WHERE a = 10",
            "INSERT INTO t VALUES (20, NULL, 20), (2, 'outside', 2) ON CONFLICT DO NOTHING",
        ):
            connection.execute(statement.encode())
        s.run_to(current_lsn(connection))
        assert follow(s) == source(s)
        assert follow(s) == source(s)  # nothing new: nothing changes

        connection.execute("TRUNCATE t; INSERT INTO t VALUES (6, 'again', 6)")
        s.run_to(current_lsn(connection))
        assert follow(s) == source(s) == [(6, "again", 6)]
