"""Topics altered or deleted while the gateway writes: only their own tables are affected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.backends.broker import set_config
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Connection, Scene
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TWO = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE u;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_b CONNECTION '' PUBLICATION q;"
)


def change(kafka: str, topic: str, what: str) -> None:
    """Do what somebody can who has rights on one topic."""
    admin = AdminClient({"bootstrap.servers": kafka})
    if what == "compacted":
        set_config(admin, topic, "cleanup.policy", "compact")
    else:
        admin.delete_topics([topic])[topic].result(60)  # it may be made again at once


def insert(connection: Connection, row: int) -> None:
    connection.execute("INSERT INTO t VALUES (%s)", [row])
    connection.execute("INSERT INTO u VALUES (%s)", [row])


def goes_on(scene: Scene, process: GatewayProcess, row: int) -> None:
    """Wait until a row of the other subscription is in Kafka."""

    def is_there() -> bool:
        assert not process.ended(), process.log()
        return (row,) in scene.rebuilt("t")

    wait_until(is_there, 60, f"row {row}")


@pytest.mark.parametrize(
    ("what", "of"),
    [("compacted", "transaction"), ("deleted", "transaction"), ("deleted", "public.u")],
)
def test_a_topic_that_is_altered_while_it_is_written_to_stops_no_other_subscription(
    scene: MakeScene, database: Database, kafka: str, what: str, of: str
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int)")
        connection.execute("ALTER TABLE u REPLICA IDENTITY FULL")
        insert(connection, 1)
        s = scene(TWO, definitions={"watch_interval_s": 0.5})
        process = s.project.start()
        wait_until(lambda: "public.u: ready" in s.cli("status").out, 60, "u to be copied")
        change(kafka, f"{s.slot}_b.{of}", what)
        insert(connection, 2)
        for row in (2, 3):
            goes_on(s, process, row)
            insert(connection, row + 1)
        if what == "compacted":
            held = "public.u: held, the topic of its subscription's markers"
            wait_until(lambda: held in s.cli("status").out, 60, "u to be held")
        assert process.terminate() == 0, process.log()
        process = s.project.start()
        goes_on(s, process, 4)
