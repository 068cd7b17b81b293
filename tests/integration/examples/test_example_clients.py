"""examples/ that print a topic say the same, by whatever client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from devkit.embedded.registry import API_PATH
from gateway.jars.java import java
from tests.support.backends.connect import fetched
from tests.support.backends.servers import BRIEF_JAVA, Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def topic(scene: Callable[..., Scene], database: Database) -> tuple[str, list[str]]:
    """A topic with a record of each kind, and the operations in their order."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("INSERT INTO t VALUES (6, 'six'), (7, 'seven')")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        s.run_to("0/1")
        for statement in (
            "UPDATE t SET b = 'changed' WHERE a = 6",
            "DELETE FROM t WHERE a = 7",
            "UPDATE t SET a = 8 WHERE a = 6",
            "TRUNCATE t",
            "INSERT INTO t VALUES (9, 'nine')",
        ):
            connection.execute(statement.encode())
        s.run_to(current_lsn(connection))
    changes = [record for record in s.read("t") if record.value is not None]
    assert [change.op for change in changes] == ["t", "r", "r", "u", "d", "d", "c", "t", "c"]
    return s.topic("t"), [f"{change.headers['lsn']} {change.op}" for change in changes]


def printed(command: Sequence[str | Path], **environment: str) -> list[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_topic_asyncio_prints_every_change(
    topic: tuple[str, list[str]], kafka: str, registry: str
) -> None:
    name, expected = topic
    program = EXAMPLES / "topic_asyncio.py"

    lines = printed([sys.executable, program, kafka, registry, name, "--to-end"])

    assert [" ".join(line.split()[:2]) for line in lines] == expected
    assert lines[-1].endswith("c None {'a': 9, 'b': 'nine'}")


def compilable(configuration: str) -> list[Path]:
    """The folder of the jars that a single Java file needs, which Java compiles as it runs it."""
    if not shutil.which("javac"):
        pytest.skip("no Java compiler is installed here (Debian: apt install default-jdk-headless)")
    return fetched([configuration])


@pytest.mark.java
def test_topic_reader_prints_every_change(
    topic: tuple[str, list[str]], kafka: str, registry: str
) -> None:
    name, expected = topic
    (jars,) = compilable("connect-avro")
    program = EXAMPLES / "TopicReader.java"
    native = registry.replace(API_PATH, "/apis/registry/v2")

    lines = printed([java(), *BRIEF_JAVA.split(), "-cp", f"{jars}/*", program, kafka, native, name])

    assert [" ".join(line.split()[:2]) for line in lines] == expected
    assert lines[-1].endswith('c null -> {"a": 9, "b": "nine"}')


def flink_rows(program: str, topic: str, kafka: str, registry: str) -> list[list[str]]:
    """What Flink prints of a query: for each row its kind, and its columns."""
    (jars,) = compilable("flink")
    folder = EXAMPLES / "flink"
    classes = f"{jars}/*"
    lines = printed(
        [java(), *BRIEF_JAVA.split(), "-cp", classes, folder / "RunSql.java", folder / program],
        TOPIC=topic,
        BOOTSTRAP_SERVERS=kafka,
        REGISTRY=registry,
    )
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if row and row[0] in ("+I", "-U", "+U", "-D")]


@pytest.mark.java
def test_flink_sql_prints_every_change(
    topic: tuple[str, list[str]], kafka: str, registry: str
) -> None:
    name, expected = topic

    rows = flink_rows("changes.sql", name, kafka, registry)

    assert {row[0] for row in rows} == {"+I"}
    assert [f"{row[1]} {row[2]}" for row in rows] == expected
    assert rows[-1][3:] == ["<NULL>", "(9, nine)"]


@pytest.mark.java
def test_flink_sql_follows_a_topic_without_truncates_as_a_table(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (b <> 'hidden');"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p WITH (copy_data = false);",
            topics={"truncate": "skip"},
        )
        s.run_to("0/1")
        for statement in (
            "INSERT INTO t VALUES (6, 'six'), (7, 'seven')",
            "UPDATE t SET b = 'changed' WHERE a = 6",
            "UPDATE t SET b = 'hidden' WHERE a = 7",
            "UPDATE t SET a = 8 WHERE a = 6",
            "TRUNCATE t",
            "INSERT INTO t VALUES (9, 'nine')",
        ):
            connection.execute(statement.encode())
        s.run_to(current_lsn(connection))

    rows = flink_rows("table.sql", s.topic("t"), kafka, registry)

    assert rows == [
        ["+I", "6", "six"],
        ["+I", "7", "seven"],
        ["-U", "6", "six"],
        ["+U", "6", "changed"],
        ["-D", "7", "seven"],
        ["-D", "6", "changed"],
        ["+I", "8", "changed"],
        ["+I", "9", "nine"],
    ]
