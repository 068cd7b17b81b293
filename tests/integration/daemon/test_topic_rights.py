"""Rights in Kafka that the gateway lacks or loses, and what is held for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.backends.broker import create_acls, create_topics, delete_acls
from tests.support.backends.secured import (
    DATABASE,
    GATEWAY,
    Secured,
    grant_documented_acls,
    secured_tables,
)
from tests.support.backends.servers import Connection
from tests.support.gateway.scene import Ended, cli
from tests.support.models.rebuild import Rebuilt
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.java]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_tables(tmp_path_factory.mktemp("secured")) as made:
        yield made


def test_rights_to_create_topics_are_checked_before_publications_are_changed(
    secured: Secured, tmp_path: Path
) -> None:
    granted = (
        "CREATE PUBLICATION p FOR TABLE t1, t2, t3, t4;"
        "CREATE SUBSCRIPTION s2 CONNECTION '' PUBLICATION p;"
    )
    another = (
        "CREATE PUBLICATION q FOR TABLE t1;"
        "CREATE SUBSCRIPTION ungranted CONNECTION '' PUBLICATION q;"
    )
    admin = secured.admin()
    grant_documented_acls(admin, {"subscription": "s2"})
    denied = {
        "s2.public.t2": AclOperation.CREATE,
        "s2.public.t3": AclOperation.WRITE,
        "s2.public.t4": AclOperation.DESCRIBE_CONFIGS,
    }
    literal, deny = ResourcePatternType.LITERAL, AclPermissionType.DENY
    acls = [
        AclBinding(ResourceType.TOPIC, topic, literal, f"User:{GATEWAY}", "*", operation, deny)
        for topic, operation in denied.items()
    ]
    create_acls(admin, acls)
    create_topics(admin, [NewTopic("s2.public.t4", 1)])
    project = secured.project(tmp_path, another)
    project.slot = "denied"
    project.extra = {**project.extra, "source": {"dsn": secured.postgres.dsn(DATABASE)}}
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]

    with secured.postgres.connect(DATABASE) as connection:
        connection.execute("CREATE TABLE t4 (a int PRIMARY KEY)")

        def run() -> Ended:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            config = ("--config", str(project.write()))
            return cli("run", "--endpos", str(row and row[0]), *config, environment=environment)

        def check() -> Ended:
            return cli("check", "--config", str(project.write()), environment=environment)

        def made() -> list[tuple[object, ...]]:
            return connection.execute(
                "SELECT pubname::text, tablename::text FROM pg_publication_tables"
                " WHERE pubname LIKE 'denied%' UNION ALL"
                " SELECT slot_name::text, 'a slot' FROM pg_replication_slots"
                " WHERE slot_name = 'denied' ORDER BY 1, 2"
            ).fetchall()

        first = run()
        before = made()
        project.definitions = granted
        before_topics = check()
        assert made() == [] and admin.list_topics().topics.keys() & {"s2.public.t1"} == set()
        allowed = run()
        checked = check()
        published = made()
        project.definitions = granted + another
        changed = run()
        after = made()

    for refused in (first, changed):
        assert "not authorised" in refused.err and "Create" in refused.err, refused.err
    assert first.code == 1
    assert changed.code == 0, changed.err
    for said in ("topic ungranted.transaction: not authorised", "its subscription's markers"):
        assert said in changed.err, "the new subscription is held, the other goes on"
    assert before == [], "nothing was made in PostgreSQL"
    assert allowed.code == 0, allowed.err
    assert {table for _, table in published} == {"t1", "a slot"}
    for topic in denied:  # their tables are held, the other goes on
        assert f"{topic}: not authorised" in allowed.err
        assert f"{topic}: not authorised" in checked.out
    for topic in ("s2.public.t2", "s2.public.t4"):  # the third one does not exist then
        assert f"{topic}: not authorised" in before_topics.out
    assert "topic s2.public.t1: not authorised" not in checked.out
    assert (before_topics.code, checked.code) == (1, 1)
    assert after == published


def test_a_topic_of_markers_that_may_not_be_used_holds_its_own_subscription_alone(
    secured: Secured, tmp_path: Path
) -> None:
    denied = {
        "hidden.transaction": AclOperation.DESCRIBE,
        "unset.transaction": AclOperation.DESCRIBE_CONFIGS,
        "unread.transaction": AclOperation.READ,
        "open.public.t2": AclOperation.DESCRIBE,
    }
    subscriptions = ("open", "hidden", "unset", "unread")
    admin = secured.admin()
    for subscription in subscriptions:
        grant_documented_acls(admin, {"subscription": subscription})
    create_topics(admin, [NewTopic(topic, 1) for topic in denied])
    literal, deny = ResourcePatternType.LITERAL, AclPermissionType.DENY
    acls = [
        AclBinding(ResourceType.TOPIC, topic, literal, f"User:{GATEWAY}", "*", operation, deny)
        for topic, operation in denied.items()
    ]
    create_acls(admin, acls)
    project = secured.project(
        tmp_path,
        "CREATE PUBLICATION p FOR TABLE t1; CREATE PUBLICATION q FOR TABLE t2;"
        + "".join(
            f"CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION p{', q' * (name == 'open')};"
            for name in subscriptions
        ),
    )
    project.slot = "markers"
    project.extra = {**project.extra, "source": {"dsn": secured.postgres.dsn(DATABASE)}}
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]
    config = ("--config", str(project.write()))

    with secured.postgres.connect(DATABASE) as connection, secured.reader() as reader:

        def run() -> Ended:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            return cli("run", "--endpos", str(row and row[0]), *config, environment=environment)

        def rows(topic: str) -> list[tuple[object, ...]]:
            return Rebuilt().apply(reader.read(topic)).rows()

        checked = cli("check", *config, environment=environment)
        first, again = run(), run()
        open_rows, status = rows("open.public.t1"), cli("status", *config, environment=environment)
        written = [reader.read(topic) for topic in denied]
        delete_acls(admin, acls)
        released = [run(), run()]
        expected = connection.execute("SELECT a, b FROM t1").fetchall()

        for ended in (first, again, *released):
            assert ended.code == 0, ended.err
        assert open_rows == expected
        assert written == [[]] * len(denied)
        assert (checked.code, status.code) == (1, 1), checked.out + status.out
        for topic in denied:
            assert f"{topic}: not authorised" in checked.out, checked.out
        for name in subscriptions[1:]:
            for held in (f"table public.t1 of subscription {name}", f"subscription {name}"):
                assert f"to do: {held} is held: the topic of" in status.out, status.out
        assert "table public.t2 of subscription open is held: " in status.out
        assert checked.out.count("; all tables of its subscription are held") == 3, checked.out
        for topic in (*(f"{name}.public.t1" for name in subscriptions), "open.public.t2"):
            assert rows(topic), topic
    with secured.postgres.connect(DATABASE) as connection:
        connection.execute("SELECT pg_drop_replication_slot('markers')")


def test_a_topic_that_may_not_be_written_any_more_holds_what_it_concerns_and_nothing_ends(
    secured: Secured, tmp_path: Path
) -> None:
    admin = secured.admin()
    for subscription in ("lasting", "muted"):
        grant_documented_acls(admin, {"subscription": subscription})
    acls = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{GATEWAY}",
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        for topic in ("lasting.public.t2", "muted.transaction")
    ]
    project = secured.project(
        tmp_path,
        "CREATE PUBLICATION p FOR TABLE t1, t2; CREATE PUBLICATION q FOR TABLE t3;"
        "CREATE SUBSCRIPTION lasting CONNECTION '' PUBLICATION p;"
        "CREATE SUBSCRIPTION muted CONNECTION '' PUBLICATION q;",
    )
    project.slot = "revoked"
    project.extra = {
        **project.extra,
        "source": {"dsn": secured.postgres.dsn(DATABASE)},
        "definitions": {"watch_interval_s": 0.5},
    }
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]
    held = (
        "table public.t2 of subscription lasting is held: writing to topic lasting.public.t2",
        "table public.t3 of subscription muted is held: the topic of its subscription's markers",
    )

    def status() -> str:
        return cli("status", "--config", str(project.write()), environment=environment).out

    with secured.postgres.connect(DATABASE) as connection, secured.reader() as reader:

        def is_there(key: int, *topics: str) -> bool:
            rows = [Rebuilt().apply(reader.read(topic)).rows() for topic in topics]
            return all((key, "x") in found for found in rows)

        try:
            gateway = project.start(environment=environment)
            gateway.wait_until_copied()
            create_acls(admin, acls)
            for key, table in ((100, "t1"), (100, "t2"), (100, "t3")):
                connection.execute(f"INSERT INTO {table} VALUES ({key}, 'x')".encode())
            wait_until(lambda: all(one in status() for one in held), 60, "both to be held")
            connection.execute("INSERT INTO t1 VALUES (101, 'x')")
            wait_until(lambda: is_there(101, "lasting.public.t1"), 60, "the other table to go on")
            delete_acls(admin, acls)
            topics = [f"{name}.public.{t}" for name, t in (("lasting", "t2"), ("muted", "t3"))]
            wait_until(lambda: is_there(100, *topics), 120, "what was held to be copied")
            wait_until(lambda: "held" not in status(), 60, "nothing to be held any more")
            assert gateway.terminate() == 0, gateway.log()
            assert "lasting.public.t2" in gateway.log() and "muted.transaction" in gateway.log()
        finally:
            project.stop_all()
            connection.execute("DELETE FROM t1 WHERE a >= 100; DELETE FROM t2 WHERE a >= 100")
            connection.execute("DELETE FROM t3 WHERE a >= 100")
            wait_until(lambda: _is_free(connection, "revoked"), 60, "the slot to be free")
            connection.execute("SELECT pg_drop_replication_slot('revoked')")


def test_a_right_to_write_that_all_topics_lose_is_asked_for_until_it_is_given_back(
    secured: Secured, tmp_path: Path
) -> None:
    admin = secured.admin()
    grant_documented_acls(admin, {"subscription": "withdrawn"})
    denial = AclBinding(
        ResourceType.TOPIC,
        "withdrawn.",
        ResourcePatternType.PREFIXED,
        f"User:{GATEWAY}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    project = secured.project(
        tmp_path,
        "CREATE PUBLICATION p FOR TABLE t1;"
        "CREATE SUBSCRIPTION withdrawn CONNECTION '' PUBLICATION p;",
    )
    project.slot = "withdrawn"
    project.extra = {**project.extra, "source": {"dsn": secured.postgres.dsn(DATABASE)}}
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]
    # As the start of an attempt finds it: nothing has been written then.
    words = "writing to topic withdrawn.transaction: not authorised"

    with secured.postgres.connect(DATABASE) as connection, secured.reader() as reader:
        try:
            gateway = project.start(environment=environment)
            gateway.wait_until_copied()
            create_acls(admin, [denial])
            connection.execute("INSERT INTO t1 VALUES (200, 'x')")
            wait_until(lambda: gateway.log().count(words) > 1, 60, "two attempts to be refused")
            delete_acls(admin, [denial])
            topic = "withdrawn.public.t1"
            wait_until(
                lambda: (200, "x") in Rebuilt().apply(reader.read(topic)).rows(), 60, "the row"
            )
            assert gateway.terminate() == 0, gateway.log()
        finally:
            project.stop_all()
            connection.execute("DELETE FROM t1 WHERE a >= 200")
            wait_until(lambda: _is_free(connection, "withdrawn"), 60, "the slot to be free")
            connection.execute("SELECT pg_drop_replication_slot('withdrawn')")


def _is_free(connection: Connection, slot: str) -> bool:
    found = connection.execute(
        "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot]
    ).fetchone()
    return found is None or not found[0]
