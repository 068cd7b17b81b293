"""Push-down: the walsender leaves out what nobody takes, and nothing else is different."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from signal import SIGHUP
from threading import Event

import psycopg
import pytest

from gateway.definitions.combine import make_plan
from gateway.definitions.model import Plan
from gateway.definitions.sql.parser import parse_definitions
from gateway.rowfilter.server.pushdown import push_down
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.own_publications import (
    check_publications,
    ensure_publications,
    extend_publications,
)
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
)
from tests.support.run.majors import EVALUATED_ON, alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]
both = alternating(__name__, 16, 18)
newest = pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True)

MakeScene = Callable[..., Scene]
WAITS = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity"
    " WHERE application_name LIKE 'pgsluice copy<%%' AND application_name LIKE %s)"
)
PUSHED = {"filters": {"pushdown": True}}
TABLES = (
    "CREATE TABLE t (tenant int, id int, b int, big text, PRIMARY KEY (tenant, id));"
    "ALTER TABLE t ALTER big SET STORAGE EXTERNAL;"
    "CREATE TABLE f (a int, b text); ALTER TABLE f REPLICA IDENTITY FULL;"
    "CREATE TABLE k (code varchar(9) PRIMARY KEY, day date, b int);"
)
ROWS = (
    "INSERT INTO t SELECT n % 10, n, n, repeat('x', 3000) FROM generate_series(1, 400) AS n;"
    "INSERT INTO f SELECT n % 7, n::text FROM generate_series(1, 70) AS n;"
    "INSERT INTO k SELECT 'c' || n % 50, '2024-01-01', n FROM generate_series(1, 50) AS n;"
)
ONE = "t WHERE (tenant = 2), f WHERE (a = 1 AND b <> '3'), k WHERE (code = 'c1' OR code = 'd2')"
TWO = "t (tenant, id, b) WHERE (tenant IN (3, 4) OR id < 5), f WHERE (a > 4 OR a IS NULL)"
OTHER_TWO = "t (tenant, id, b) WHERE (tenant = 7), f WHERE (a > 5)"


def definitions(two: str) -> str:
    return (
        f"CREATE PUBLICATION one FOR TABLE {ONE}; CREATE PUBLICATION two FOR TABLE {two};"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION one;"
        "CREATE SUBSCRIPTION {s}_two CONNECTION '' PUBLICATION two;"
    )


def write(connection: Connection, stop: Event) -> None:
    """Insert, delete, and move rows over all borders, also twice in one transaction."""
    number = 0
    while not stop.wait(0.02):
        number += 1
        n = 1 + number * 37 % 400
        with connection.transaction():
            connection.execute("UPDATE t SET b = b + 1 WHERE id = %s", [n])
            connection.execute("UPDATE t SET tenant = (tenant + 1) %% 10 WHERE id = %s", [n + 1])
            connection.execute(
                "UPDATE t SET tenant = 2, big = 'small' WHERE id = %s AND b %% 2 = 0", [n + 2]
            )
            connection.execute("DELETE FROM t WHERE id = %s", [n + 3])
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 0, 'z') ON CONFLICT DO NOTHING", [n % 10, n + 3]
            )
            connection.execute("UPDATE t SET tenant = tenant + 1 WHERE id = %s", [n + 3])
            connection.execute("UPDATE f SET a = (a + 1) %% 7 WHERE b = %s", [str(n % 70)])
            connection.execute("UPDATE f SET a = NULL WHERE b = %s", [str(n % 71)])
            connection.execute("UPDATE k SET code = 'd' || b WHERE b = %s", [n % 50])
            connection.execute("UPDATE k SET code = 'c' || b WHERE b = %s", [(n + 25) % 50])
        if number % 20 == 0:
            connection.execute("TRUNCATE f")
            connection.execute("INSERT INTO f SELECT n % 7, n::text FROM generate_series(1, 70) n")


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute((TABLES + ROWS).encode())
        connection.execute(f"CREATE PUBLICATION one FOR TABLE {ONE}".encode())
        connection.execute(f"CREATE PUBLICATION two FOR TABLE {TWO}".encode())
        connection.execute(f"CREATE PUBLICATION other_two FOR TABLE {OTHER_TWO}".encode())
        yield connection


def native(
    database: Database, make_database: DatabaseFactory, publication: str
) -> NativeSubscription:
    return NativeSubscription(database, make_database, TABLES, [publication])


def assert_same(scene: Scene, one: NativeSubscription, two: NativeSubscription) -> None:
    assert scene.rebuilt("t") == one.rows("t")
    assert scene.rebuilt("f") == one.rows("f")
    assert scene.rebuilt("k") == one.rows("k")
    narrow = sorted((row[:3] for row in two.rows("t")), key=repr)
    assert scene.rebuilt("t", f"{scene.slot}_two") == narrow
    assert scene.rebuilt("f", f"{scene.slot}_two") == two.rows("f")


def union_of(connection: Connection, scene: Scene, table: str) -> str | None:
    found = value_of(
        connection,
        "SELECT (SELECT pg_get_expr(r.prqual, r.prrelid) FROM pg_publication_rel r"
        " JOIN pg_publication p ON p.oid = r.prpubid"
        " WHERE p.pubname = %s AND r.prrelid = %s::regclass)",
        f"{scene.slot}_leaf",
        table,
    )
    return None if found is None else str(found)


@both
def test_tables_are_those_of_native_subscriptions_while_filters_change(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, source: Connection
) -> None:
    """Filters are altered under load, and while a transaction is open that the new ones concern."""
    one = native(database, make_database, "one")
    other = native(database, make_database, "other_two")
    with database.connect() as writer, database.connect() as slow:
        s = scene(definitions(TWO), **PUSHED)
        gateway = s.project.start()
        gateway.wait_until_copied(60)
        assert "tenant = 2" in str(union_of(source, s, "t"))
        assert "tenant = 7" not in str(union_of(source, s, "t"))
        with running(lambda stop: write(writer, stop)):
            with slow.transaction():
                slow.execute("INSERT INTO t VALUES (7, 9001, 1, 'open'), (6, 9002, 1, 'open')")
                s.project.definitions = definitions(OTHER_TWO).replace("{s}", s.slot)
                s.project.write()
                gateway.send(SIGHUP)
                wait_until(lambda: value_of(source, WAITS, f"% {s.slot}"), 60, "the copy to wait")
                slow.execute("UPDATE t SET tenant = 7, id = 9003 WHERE id = 9002")
            wait_for_copy_again(s)
        end = current_lsn(source)
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(end)
    one.wait_until_applied(end)
    other.wait_until_applied(end)

    assert_same(s, one, other)
    assert "tenant = 7" in str(union_of(source, s, "t"))
    assert "tenant = 3" not in str(union_of(source, s, "t"))
    assert_exactly_once(s, ["t", "f", "k"])
    assert_exactly_once(s, ["t", "f"], f"{s.slot}_two")


def wait_for_copy_again(scene: Scene) -> None:
    """Wait until the tables of the second subscription are copied for the second time."""

    def ready() -> bool:
        markers = scene.markers(f"{scene.slot}_two")
        copies = [m["copy"]["state"] for m in markers if m["kind"] == "COPY"]
        return copies.count("ready") >= 4

    wait_until(ready, 60, "the tables to be copied again")


@newest
def test_the_setting_may_change_between_two_runs(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, source: Connection
) -> None:
    """What is behind is read by the publication of its time, whatever that has become."""
    one = native(database, make_database, "one")
    two = native(database, make_database, "two")
    s = scene(definitions(TWO))
    s.run_to(current_lsn(source))
    assert union_of(source, s, "t") is None
    for pushed in (True, False, True):
        _some(source)
        s.project.extra = {"filters": {"pushdown": pushed}}
        ended = s.run_to(current_lsn(source))
        assert (union_of(source, s, "t") is not None) is pushed
        assert "ALTER PUBLICATION" in ended.err
    _some(source)
    end = current_lsn(source)
    assert "ALTER PUBLICATION" not in s.run_to(end).err
    one.wait_until_applied(end)
    two.wait_until_applied(end)

    assert_same(s, one, two)


def _some(connection: Connection) -> None:
    calls = [False] * 60 + [True]

    class Calls(Event):
        def wait(self, timeout: float | None = None) -> bool:
            return calls.pop(0)

    write(connection, Calls())


@newest
def test_what_nobody_takes_is_not_sent(scene: MakeScene, source: Connection) -> None:
    """The number of a change counts all that the server has sent of the transaction."""
    s = scene(definitions(TWO))
    received = []
    for pushed in (False, True):
        s.project.extra = {"filters": {"pushdown": pushed}}
        s.run_to(current_lsn(source))
        source.execute("UPDATE t SET b = b + 1")
        s.run_to(current_lsn(source))
        values = [record.value for record in s.read("t") if record.value is not None]
        last = values[-1]["transaction"]
        received.append(int(last["total_order"]))

    assert received[0] > 350
    assert 40 <= received[1] <= 125


@newest
def test_check_says_what_is_at_risk_and_the_gateway_ends_it(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("DROP PUBLICATION one, two, other_two")  # they would make writes fail as well
    source.execute("CREATE TABLE n (a int PRIMARY KEY, b int)")
    s = scene(
        definitions(TWO)
        + "CREATE PUBLICATION three FOR TABLE n WHERE (10 / a > 1);"
        + "CREATE SUBSCRIPTION {s}_three CONNECTION '' PUBLICATION three;",
        filters={"pushdown": True},
        definitions={"watch_interval_s": 0.2},
    )
    gateway = s.project.start()
    gateway.wait_until_copied(60)
    checked = s.cli("check").out
    assert "the server filters table public.t by id, tenant: every UPDATE and DELETE" in checked
    assert "push-down: not for table public.n: a filter can fail on a row" in checked
    assert "publication to be made" not in checked

    source.execute("CREATE UNIQUE INDEX other ON t (id, b); ALTER TABLE t ALTER b SET NOT NULL")
    source.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX other")
    with pytest.raises(psycopg.errors.InvalidColumnReference):
        source.execute("UPDATE t SET b = b + 1")
    wait_until(lambda: union_of(source, s, "t") is None, 60, "the filter to be taken out")
    source.execute("UPDATE t SET b = b + 1")
    assert gateway.terminate() == 0, gateway.log()


def plan_of(connection: Connection, one: str) -> Plan:
    text = f"CREATE PUBLICATION p FOR TABLE {one};CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p"
    parsed = parse_definitions(text)
    catalog = read_catalog(connection, parsed)
    plan = make_plan(parsed, catalog, prefix="gw", missing_identity="refuse")
    return push_down(plan, parsed)


@both
def test_a_filter_is_written_once_however_the_server_prints_it(source: Connection) -> None:
    source.execute(
        """CREATE TABLE w (i int, n numeric(9, 2), v varchar(5), c char(4), d date, z timestamptz,
               u uuid, s smallint, x bytea, b bool, r real, g bigint, "Q q" text COLLATE "C");
           ALTER TABLE w REPLICA IDENTITY FULL"""
    )
    for where in (
        "i > 5.5 AND v = 'NSW'",
        "v = 'a' OR v > 'b' COLLATE \"C\" OR c IN ('x', 'y') OR c <> 'q'",
        "(i = 1 OR i = 2) OR (i = 3 OR NOT b)",
        "d >= '2024-02-29' AND z < '2024-01-01 00:00:00+02'",
        "u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' OR x = 'abc' OR s BETWEEN -3 AND 4",
        """"Q q" >= 'it''s' OR "Q q" < 'a' OR v IS NULL""",
        "n IN (1, 2.50) OR r = 1.5 OR g <> ALL (ARRAY[1, 2]) OR b IS NOT TRUE",
        "CASE WHEN i IS NULL THEN b ELSE i IS DISTINCT FROM 4 END",
    ):
        plan = plan_of(source, f"w WHERE ({where})")
        (own,) = plan.server_publications
        assert own.filters, where
        assert ensure_publications(source, plan, prefix="gw") != []
        assert check_publications(source, plan, prefix="gw") == [], where
        assert ensure_publications(source, plan, prefix="gw") == [], where


@newest
def test_a_filter_is_widened_before_it_is_narrowed(source: Connection) -> None:
    def filter_of(table: str) -> str | None:
        found = value_of(
            source,
            "SELECT (SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel"
            " WHERE prrelid = %s::regclass AND prpubid = (SELECT oid FROM pg_publication"
            " WHERE pubname = 'gw_leaf'))",
            table,
        )
        return None if found is None else str(found)

    before = plan_of(source, "t WHERE (tenant = 1), k WHERE (code = 'a')")
    after = plan_of(source, "t WHERE (tenant = 2), f")
    ensure_publications(source, before, prefix="gw")
    extend_publications(source, after, prefix="gw")
    assert filter_of("t") == "((tenant = 1) OR (tenant = 2))"
    assert "'a'" in str(filter_of("k"))
    assert filter_of("f") is None
    assert extend_publications(source, after, prefix="gw") == []
    ensure_publications(source, after, prefix="gw")
    assert filter_of("t") == "(tenant = 2)"
    extend_publications(source, plan_of(source, "t, f WHERE (a = 1)"), prefix="gw")
    assert filter_of("t") is None
    assert filter_of("f") is None
