"""Names of tables and subscriptions whose topics would be one, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.security.source.test_foreign_tables import (
    QUICK,
    as_role,
    published,
    role,
    wait_for_held,
)
from tests.support.backends.broker import create_topics
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
EVERYTHING = (
    "CREATE PUBLICATION p FOR ALL TABLES;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_public CONNECTION '' PUBLICATION p;"
)
HOSTILE = """
    CREATE SCHEMA public_x; CREATE TABLE public_x.y (a int PRIMARY KEY);
    CREATE SCHEMA x; CREATE TABLE x.y (a int PRIMARY KEY);
    CREATE TABLE transaction (a int PRIMARY KEY);
    CREATE TABLE z (a int PRIMARY KEY);
"""
HELD = {
    "public_x.y": "collides with",
    "x.y": "collides with",
    "public.transaction": "collides with",
    "public.z": "collides with",
}


def test_a_name_takes_no_topic_from_another_table_subscription_or_program(
    scene: MakeScene, database: Database, kafka: str
) -> None:
    with (
        database.connect() as connection,
        role(connection, database, "mallory") as mallory,
        as_role(database, mallory) as attacker,
    ):
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        connection.execute("CREATE TABLE x_y (a int PRIMARY KEY); INSERT INTO x_y VALUES (1)")
        s = scene(EVERYTHING, definitions=QUICK)
        admin = AdminClient({"bootstrap.servers": kafka})
        names = (f"{s.slot}_public_z", f"{s.slot}_public_later")
        create_topics(admin, [NewTopic(name, 1, 1) for name in names])
        attacker.execute(HOSTILE.encode())
        process = s.project.start()
        wait_for_held(s, process, HELD)
        published(s, connection, process, 2)

        attacker.execute("CREATE TABLE later (a int PRIMARY KEY); INSERT INTO later VALUES (1)")
        wait_for_held(s, process, {**HELD, "public.later": "collides with"})
        published(s, connection, process, 3)
        assert s.rebuilt("x_y") == [(1,)]
        assert process.terminate() == 0, process.log()


def test_names_that_differ_by_case_alone_are_two(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            'CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE "T" (a int PRIMARY KEY)'
        )
        connection.execute('INSERT INTO t VALUES (1); INSERT INTO "T" VALUES (2)')
        slot = f"gw_{database.name}"
        s = scene(
            'CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION "P" FOR TABLE t, "T";'
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            f'CREATE SUBSCRIPTION "{slot.upper()}" CONNECTION \'\' PUBLICATION "P";'
        )
        s.run_to(current_lsn(connection))
        connection.execute('INSERT INTO t VALUES (3); INSERT INTO "T" VALUES (4)')
        s.run_to(current_lsn(connection))

    assert s.rebuilt("t") == s.rebuilt("t", slot.upper()) == [(1,), (3,)]
    assert s.rebuilt("T", slot.upper()) == [(2,), (4,)]


@pytest.mark.parametrize("shared", ["transaction", "message", "error"])
def test_a_progress_topic_that_is_another_of_its_own_is_refused(
    scene: MakeScene, database: Database, shared: str
) -> None:
    slot = f"gw_{database.name}"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            topics={"progress": f"{slot}.{shared}"},
            gateway={"name": slot},
            messages={"prefixes": ["app"]},
            on_error={"filter": "quarantine"},
        )
        ended = s.cli("run", "--endpos", current_lsn(connection))

    assert ended.code == 1
    assert f"topics.progress: {slot}.{shared} is the topic of" in ended.err
