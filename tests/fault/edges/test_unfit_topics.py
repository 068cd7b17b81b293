"""Topics that somebody has altered: one table's trouble, or one subscription's."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from html import unescape

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.broker import (
    add_partitions,
    create_topics,
    delete_topics,
    set_config,
)
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn, wait_until_confirmed
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE squashed, split, other;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = ("squashed", "split", "other")


def test_a_topic_that_somebody_has_altered_holds_its_own_table_alone(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    with database.connect() as connection:
        for table in TABLES:
            connection.execute(
                f"CREATE TABLE {table} (a int PRIMARY KEY);"
                f"INSERT INTO {table} SELECT generate_series(1, 9)".encode()
            )
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        set_config(admin, s.topic("squashed"), "cleanup.policy", "compact")
        add_partitions(admin, s.topic("split"), 3)
        before = {table: len(s.read(table)) for table in TABLES}

        for key in (10, 11):  # at each start
            for table in TABLES:
                connection.execute(f"INSERT INTO {table} VALUES ({key})".encode())
            s.run_to(current_lsn(connection))
        status, checked = s.cli("status"), s.cli("check")

        rows = [(key,) for key in range(1, 12)]
        assert s.rebuilt("other") == sorted(rows, key=repr), "the others go on"
        assert len(s.read("squashed")) == before["squashed"]
        assert len(s.read("split")) == before["split"]
        for said in ("cleanup.policy=compact", "has 3 partitions, it had 1"):
            assert said in status.out and said in checked.out, status.out + checked.out
        assert (status.code, checked.code) == (1, 1)

        # What is repaired is copied by itself; what cannot be, when somebody asks for it.
        set_config(admin, s.topic("squashed"), "cleanup.policy", "delete")
        s.run_to(current_lsn(connection))
        s.run_to(current_lsn(connection))
        assert s.rebuilt("squashed") == sorted(rows, key=repr)
        assert len(s.read("split")) == before["split"]
        assert "the request is kept" in s.cli("copy", "split", "--no-wait").err
        s.run_to(current_lsn(connection))
        s.run_to(current_lsn(connection))

        assert s.rebuilt("split") == sorted(rows, key=repr)
        assert "held" not in s.cli("status").out


def test_an_unfit_topic_of_markers_holds_its_own_subscription_alone(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY);"
            "INSERT INTO t SELECT generate_series(1, 9); INSERT INTO u SELECT generate_series(1, 9)"
        )
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t, u;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_fit CONNECTION '' PUBLICATION p;"
        )
        fit, markers = f"{s.slot}_fit", f"{s.slot}.transaction"
        s.run_to(current_lsn(connection))
        add_partitions(admin, markers, 2)
        before = {table: len(s.read(table)) for table in ("t", "u")}
        marked = len(s.markers())

        for key in (10, 11):  # at each start
            connection.execute(f"INSERT INTO t VALUES ({key})".encode())
            s.run_to(current_lsn(connection))
        status, checked = s.cli("status"), s.cli("check")

        rows = sorted([(key,) for key in range(1, 12)], key=repr)
        assert s.rebuilt("t", fit) == rows, "the other subscription goes on"
        assert {table: len(s.read(table)) for table in ("t", "u")} == before
        assert len(s.markers()) == marked
        for table in ("t", "u"):
            assert f"table public.{table} of subscription {s.slot} is held: " in status.out, (
                status.out
            )
        assert f"topic {markers} has 2 partitions, 1 expected" in status.out
        assert "all tables of its subscription are held" in checked.out
        assert (status.code, checked.code) == (1, 1)

        delete_topics(admin, [markers])
        s.run_to(current_lsn(connection))
        s.run_to(current_lsn(connection))

        assert s.rebuilt("t") == rows
        assert s.rebuilt("u") == sorted([(key,) for key in range(1, 10)], key=repr)
        assert "held" not in s.cli("status").out


def test_a_subscription_without_tables_whose_topic_of_markers_is_unfit_shows_everywhere(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE SCHEMA later")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLES IN SCHEMA later;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_idle CONNECTION '' PUBLICATION q;",
            **LISTENING,
        )
        idle = f"{s.slot}_idle"
        markers = f"{idle}.transaction"
        create_topics(admin, [NewTopic(markers, 2)])
        gateway = Monitored(s.project.start())
        gateway.process.wait_until_copied()
        words = f"subscription {idle} is held: the topic of its subscription's markers"

        def places() -> list[str]:
            """Places that name the held subscription."""
            status = s.cli("status")
            acts = [p["message"] for p in gateway.status().get("problems", [])]
            said = {
                "status": f"to do: {words}" in status.out and status.code == 1,
                "gateway's status": any(act.startswith(words) for act in acts),
                "page": words in unescape(gateway.get("/")[1]),
                "metrics": (idle,) in gateway.metrics().get("subscription_held", {}),
                "readiness": words in gateway.get("/readyz")[1],
                "log": "a subscription is held" in gateway.process.log(),
            }
            return [place for place, is_said in said.items() if is_said]

        wait_until(lambda: len(places()) == 6, 60, "it to be said everywhere")
        connection.execute("INSERT INTO t VALUES (1)")
        wait_until_confirmed(connection, s.slot)
        delete_topics(admin, [markers])
        wait_until(lambda: places() == ["log"], 60, "it to be over")
        connection.execute(
            "CREATE TABLE later.v (a int PRIMARY KEY); INSERT INTO later.v VALUES (1)"
        )
        wait_until(lambda: "later.v: ready" in s.cli("status").out, 60, "the table to be copied")
        assert gateway.process.terminate() == 0, gateway.process.log()
        assert gateway.process.log().count("a subscription is held") == 1
        assert s.markers(idle)[-1]["kind"] in ("END", "PROGRESS")


def test_held_subscriptions_are_looked_at_without_asking_the_registry(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    with database.connect() as connection, Proxy(registry) as proxy:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY); CREATE SCHEMA later;"
            "CREATE TABLE u (a int PRIMARY KEY)"
        )
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLES IN SCHEMA later;"
            "CREATE PUBLICATION r FOR TABLE u;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_idle CONNECTION '' PUBLICATION q;"
            "CREATE SUBSCRIPTION {s}_busy CONNECTION '' PUBLICATION r;",
            registry={"url": proxy.through(registry)},
        )
        markers = [f"{s.slot}_{name}.transaction" for name in ("idle", "busy")]
        create_topics(admin, [NewTopic(topic, 2) for topic in markers])
        gateway = s.project.start()
        gateway.wait_until_copied()

        proxy.refuse()
        proxy.reset()
        os.kill(gateway.pid, signal.SIGHUP)

        gateway.wait_for("nothing has changed in the definitions")
        assert "reload postponed" not in gateway.log()
        proxy.accept()
        delete_topics(admin, markers)
        os.kill(gateway.pid, signal.SIGHUP)
        wait_until(lambda: "held" not in s.cli("status").out, 60, "both to be released")
        assert gateway.terminate() == 0, gateway.log()
