"""examples/ do what they say, against a real gateway's topics."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
LARGE = "repeat('x', 20000)"


def test_topic_to_sqlite_keeps_a_table_equal(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    file = tmp_path / "copy.db"

    def follow(s: Scene) -> list[tuple[Any, ...]]:
        """Run it to the end of the topic; the rows that it has then."""
        arguments = ["--config", str(s.project.write()), s.topic("t"), str(file), "--to-end"]
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
        assert "'a': 80" in printed_by_the_readme(s, kafka, registry)


@pytest.mark.parametrize(
    ("a", "key", "is_refused"),
    [
        ("int PRIMARY KEY", ["b"], True),
        ("int PRIMARY KEY", ["b", "a"], False),
        ("int", [], True),
        ("int", ["a"], True),
    ],
)
def test_topic_to_sqlite_refuses_a_key_that_rows_share(
    scene: Callable[..., Scene],
    database: Database,
    kafka: str,
    registry: str,
    tmp_path: Path,
    a: str,
    key: list[str],
    is_refused: bool,
) -> None:
    with database.connect() as connection:
        connection.execute(f"CREATE TABLE t (a {a}, b int)".encode())
        connection.execute(
            "ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 7), (2, 7)"
        )
    s = scene(
        "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        **({"topics.keys": {"public.t": key}} if key else {}),
    )
    s.run_to("0/1")
    file = tmp_path / "copy.db"
    arguments = [kafka, registry, s.topic("t"), str(file), "--to-end"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "topic_to_sqlite.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )

    with closing(sqlite3.connect(file)) as db:
        rows = [json.loads(row) for (row,) in db.execute("SELECT row FROM row ORDER BY key")]
    assert ("several rows can have the same key" in done.stderr) is is_refused
    assert rows == ([] if is_refused else [{"a": 1, "b": 7}, {"a": 2, "b": 7}])


def printed_by_the_readme(s: Scene, kafka: str, registry: str) -> str:
    """Run the fifteen lines until they have printed a change of a key, then on a missing topic."""
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    text = text.replace("localhost:9092", kafka).replace("http://localhost:8081", registry)
    text = text.replace('"readers"', f'"{uuid.uuid4()}"')
    lines = []
    command = [sys.executable, "-u", "-c", text.replace("s1.public.t1", s.topic("t"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "'a': 80" in line:
                break
        process.kill()
    # An error is not passed over: a topic that is not there ends it.
    missing = [sys.executable, "-c", text.replace("s1.public.t1", s.topic("none"))]
    done = subprocess.run(missing, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "UNKNOWN_TOPIC_OR_PART" in done.stderr
    return "".join(lines)
