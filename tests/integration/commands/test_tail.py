"""``tail``: transactions in commit order over the topics of a subscription, and parts of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Ended, Scene, current_lsn, running, value_of

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE t (n int PRIMARY KEY, b bytea);
CREATE TABLE u (n int PRIMARY KEY);
CREATE SCHEMA other;
CREATE TABLE other.orders (n int PRIMARY KEY);
"""
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t, u, other.orders;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""


def changes(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def numbers(ended: Ended) -> list[int]:
    return [change["after"]["n"] for change in changes(ended) if change["op"] == "c"]


def test_changes_of_all_topics_come_in_commit_order(
    scene: MakeScene, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, topics={"partitions": 3}, limits={"max_batch_records": 7})
        s.run_to("0/1")
        xids, number, places = {}, 0, {}
        for transaction in range(30):
            with connection.transaction():
                xids[transaction] = value_of(connection, "SELECT pg_current_xact_id()::text")
                for table in ("t", "other.orders", "u", "t")[: 1 + transaction % 4]:
                    number += 1
                    places[number] = transaction
                    connection.execute(f"INSERT INTO {table} VALUES ({number})".encode())
            if transaction == 14:
                middle, lsn = number, current_lsn(connection)
                time = value_of(connection, "SELECT clock_timestamp()::text")
        before = value_of(connection, "SELECT clock_timestamp()")
        s.run_to(current_lsn(connection))

    with monkeypatch.context() as patch:
        requests: list[int] = []  # numbers of partitions whose offsets are looked up in one
        look_up = AdminClient.list_offsets

        def counted(admin: AdminClient, places: dict[Any, Any], **options: Any) -> Any:
            requests.append(len(places))
            return look_up(admin, places, **options)

        patch.setattr(AdminClient, "list_offsets", counted)
        everything = s.cli("tail", s.slot, "--from-beginning", "--no-follow", "--json")
    assert requests == [9, 9, 9, 9], "first and last offsets, at the beginning and in the end"
    inserts = [change for change in changes(everything) if change["op"] == "c"]

    assert [change["after"]["n"] for change in inserts] == list(range(1, number + 1))
    assert [change["xid"] for change in inserts] == [
        int(xids[places[change["after"]["n"]]]) for change in inserts
    ]
    assert {change["table"] for change in inserts} == {"t", "u", "orders"}
    times = [datetime.fromisoformat(change["time"]) for change in inserts]
    assert times == sorted(times) and times[-1] <= before
    late = list(range(middle + 1, number + 1))
    assert numbers(s.cli("tail", s.slot, "--since", lsn, "--no-follow", "--json")) == late
    assert numbers(s.cli("tail", s.slot, "--since", time, "--no-follow", "--json")) == late
    some = s.cli("tail", s.slot, "--since", lsn, "--limit", "3", "--json")
    assert numbers(some) == late[:3]
    one = s.cli("tail", f"{s.slot}.orders", "--since", lsn, "--limit", "1")
    assert one.code == 0
    assert f"  {xids[places[middle + 2]]}  {s.slot}.other.orders  INSERT n={middle + 2}" in one.out


def test_changes_that_come_are_shown_until_there_are_enough(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
    s = scene(DEFINITIONS)
    gateway = s.project.start()
    gateway.wait_until_copied()

    def write(stop: Event) -> None:
        number = 0
        with s.connect() as connection:
            while not stop.wait(0.05):
                number += 2
                with connection.transaction():
                    connection.execute(f"INSERT INTO t VALUES ({number}, '\\x00ff')".encode())
                    connection.execute(f"INSERT INTO u VALUES ({number + 1})".encode())

    with running(write):
        ended = s.cli("tail", s.slot, "--limit", "20", "--json")
    shown = changes(ended)
    assert f"following {s.slot}" in ended.err
    assert gateway.terminate() == 0

    found = [change["after"]["n"] for change in shown]
    assert found == list(range(found[0], found[0] + 20))
    assert {change["after"].get("b") for change in shown} == {"\\x00ff", None}


@pytest.mark.parametrize(
    "arguments",
    [("--since", "yesterday"), ("--limit", "0"), ("--since", "0/1", "--from-beginning")],
)
def test_what_cannot_be_meant_is_wrong_usage(scene: MakeScene, arguments: tuple[str, ...]) -> None:
    assert scene(DEFINITIONS).cli("tail", "s", *arguments).code == 2
