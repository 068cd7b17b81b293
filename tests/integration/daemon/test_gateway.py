"""The daemon as a process between a real PostgreSQL and a real broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.sink.own_topics.progress import read_progress
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess, GatewayProject, Read, TopicReader
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MANUAL_TABLES = """
CREATE TABLE t1 (a int, b int, c text, PRIMARY KEY (a, c));
CREATE TABLE t2 (d int, e int, f int, PRIMARY KEY (d));
CREATE TABLE t3 (g int, h int, i int, PRIMARY KEY (g));
"""
MANUAL_PUBLICATIONS = """
CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5 AND c = 'NSW');
CREATE PUBLICATION p2 FOR TABLE t1, t2 WHERE (e = 99);
CREATE PUBLICATION p3 FOR TABLE t2 WHERE (d = 10), t3 WHERE (g = 10);
"""


@pytest.fixture
def reader(kafka: str, registry: str) -> Iterator[TopicReader]:
    with TopicReader(kafka, registry) as reader:
        yield reader


@pytest.fixture
def project(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> Iterator[Callable[..., GatewayProject]]:
    made: list[GatewayProject] = []

    def make(definitions: str, **extra: dict[str, Any]) -> GatewayProject:
        slot = f"gw_{os.getpid()}_{database.name}"[-50:]
        made.append(
            GatewayProject(tmp_path, database.dsn, kafka, registry, slot, definitions, extra)
        )
        return made[-1]

    yield make
    for one in made:
        one.stop_all()


def lsn(connection: psycopg.Connection[Any]) -> str:
    """The end of everything committed so far."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def ops(records: list[Read]) -> list[tuple[str, Any]]:
    """Operation and row of each record, without tombstones and the copy's first record."""
    return [
        (r.op, r.value["after"] or r.value["before"])
        for r in records
        if r.value is not None and r.op != "t"
    ]


def test_copy_then_stream_with_the_manuals_filters(
    project: Callable[..., GatewayProject], database: Database, reader: TopicReader
) -> None:
    with database.connect() as connection:
        connection.execute(MANUAL_TABLES)
        connection.execute(
            "INSERT INTO t1"
            " VALUES (2, 102, 'NSW'), (3, 103, 'QLD'), (6, 106, 'NSW'), (9, 109, 'NSW')"
        )
        p = project(f"{MANUAL_PUBLICATIONS} CREATE SUBSCRIPTION {{}} CONNECTION '' PUBLICATION p1;")
        name = p.slot
        p.definitions = p.definitions.format(name)
        p.run_to("0/1")

        connection.execute("UPDATE t1 SET b = 999 WHERE a = 6")
        connection.execute("UPDATE t1 SET a = 555 WHERE a = 2")
        connection.execute("UPDATE t1 SET c = 'VIC' WHERE a = 9")
        p.run_to(lsn(connection))

    assert ops(reader.read(f"{name}.public.t1")) == [
        ("r", {"a": 6, "b": 106, "c": "NSW"}),
        ("r", {"a": 9, "b": 109, "c": "NSW"}),
        ("u", {"a": 6, "b": 999, "c": "NSW"}),
        ("c", {"a": 555, "b": 102, "c": "NSW"}),
        ("d", {"a": 9, "b": None, "c": "NSW"}),
    ]


def test_a_slot_that_another_gateway_has_made_meanwhile_is_not_taken_for_one_that_is_gone(
    scene: Callable[..., Scene], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    )
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    others: list[GatewayProcess] = []

    def read_behind_another(*arguments: Any, **options: Any) -> Any:
        if not others:
            others.append(s.project.start())
            others[0].wait_until_copied()
            assert others[0].terminate() == 0
        return read_progress(*arguments, **options)

    monkeypatch.setattr("gateway.runtime.lifecycle.slot_start.read_progress", read_behind_another)
    with database.connect() as connection:
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == [(1,)]
