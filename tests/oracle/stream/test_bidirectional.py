"""Two databases that replicate to each other, and a gateway on one of them: nothing loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.process import GatewayProject, Read, TopicReader
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text)"
ROUNDS = 5


def subscribe(subscriber: Database, publisher: Database) -> None:
    """Replicate natively what was not replicated to `publisher` itself."""
    slot = f"to_{subscriber.name}"[-60:]
    with publisher.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    with subscriber.connect() as connection:
        connection.execute(
            sql.SQL(
                "CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION everything"
                " WITH (create_slot = false, slot_name = {}, copy_data = false, origin = none)"
            ).format(sql.Identifier(slot), sql.Literal(publisher.server_dsn), sql.Literal(slot))
        )


def rows(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT * FROM t ORDER BY a").fetchall()


def changes(records: list[Read]) -> list[tuple[str, dict[str, Any]]]:
    return [(r.op, r.value["after"]) for r in records if r.value is not None and r.op in "cu"]


@alternating(__name__, 16, 18)
def test_changes_that_came_from_the_other_side_are_left_out_under_origin_none(
    make_database: DatabaseFactory, kafka: str, registry: str, tmp_path: Path
) -> None:
    here, there = make_database("here"), make_database("there")
    for database in (here, there):
        with database.connect() as connection:
            connection.execute(TABLE)
            connection.execute("CREATE PUBLICATION everything FOR TABLE t")
    subscribe(here, there)
    subscribe(there, here)
    local, every = f"local_{here.name}", f"every_{here.name}"
    project = GatewayProject(
        tmp_path,
        here.dsn,
        kafka,
        registry,
        f"gw_{here.name}"[-50:],
        "CREATE PUBLICATION p FOR TABLE t;"
        f"CREATE SUBSCRIPTION {local} CONNECTION '' PUBLICATION p WITH (origin = none);"
        f"CREATE SUBSCRIPTION {every} CONNECTION '' PUBLICATION p WITH (origin = any);",
    )
    try:
        project.run_to("0/1")
        with here.connect() as a, there.connect() as b:
            for n in range(ROUNDS):
                a.execute("INSERT INTO t VALUES (%s, 'here')", [n])
                b.execute("INSERT INTO t VALUES (%s, 'there')", [100 + n])
            a.execute("UPDATE t SET b = 'here again' WHERE a = 0")
            b.execute("UPDATE t SET b = 'there again' WHERE a = 100")
            expected = [
                *[(n, "here again" if n == 0 else "here") for n in range(ROUNDS)],
                *[(100 + n, "there again" if n == 0 else "there") for n in range(ROUNDS)],
            ]
            wait_until(
                lambda: rows(a) == expected and rows(b) == expected,
                60.0,
                "both sides to have everything",
            )
            row = a.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
        project.run_to(row[0])
    finally:
        project.stop_all()

    with TopicReader(kafka, registry) as reader:
        inserted_here = [("c", {"a": n, "b": "here"}) for n in range(ROUNDS)]
        updated_here = ("u", {"a": 0, "b": "here again"})
        assert changes(reader.read(f"{local}.public.t")) == [*inserted_here, updated_here]
        seen = reader.read(f"{every}.public.t")
        assert len(changes(seen)) == 2 * (ROUNDS + 1)
        origins = {
            (r.value or {})["after"]["b"][:4]: r.headers.get("origin") for r in seen if r.op == "c"
        }
        assert origins["here"] is None
        assert (origins["ther"] or "").startswith("pg_")
