"""examples/ that print a topic say the same, by whatever client."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from devkit.embedded.registry import API_PATH
from gateway.jars.java import java
from tests.support.backends.flink import EXAMPLES, compilable, flink_rows, printed
from tests.support.backends.servers import BRIEF_JAVA, Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


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


def test_topic_asyncio_prints_every_change(
    topic: tuple[str, list[str]], kafka: str, registry: str
) -> None:
    name, expected = topic
    program = EXAMPLES / "topic_asyncio.py"

    lines = printed([sys.executable, program, kafka, registry, name, "--to-end"])

    assert [" ".join(line.split()[:2]) for line in lines] == expected
    assert lines[-1].endswith("c None {'a': 9, 'b': 'nine'}")


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


@pytest.mark.java
def test_flink_sql_prints_every_change(
    topic: tuple[str, list[str]], kafka: str, registry: str
) -> None:
    name, expected = topic

    rows = flink_rows("changes.sql", name, kafka, registry)

    assert {row[0] for row in rows} == {"+I"}
    assert [f"{row[1]} {row[2]}" for row in rows] == expected
    assert rows[-1][3:] == ["<NULL>", "(9, nine)"]
