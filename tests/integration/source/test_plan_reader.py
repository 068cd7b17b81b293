"""The plan is read again when, and only when, the catalog has changed since it was read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from gateway.config import load_settings
from gateway.core.errors import FilterError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import Watermark
from gateway.definitions.changes import copy_states
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.plan_reader import PlanReader
from gateway.source.catalog.watch import whole_digest
from gateway.source.session.connection import connect
from tests.support.gateway.scene import (
    Connection,
    Scene,
    value_of,
    wait_for_copy_marker,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
MakeReader = Callable[[str], PlanReader]
TABLES = b"""
CREATE TABLE t (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE u (a int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
"""
# The filter of the file is resolved by a publication that is rolled back: that takes an xid.
DEFINITIONS = """
CREATE PUBLICATION f FOR TABLE t WHERE (b > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, f;
"""


def next_xid(connection: Connection) -> int:
    """The next transaction id; whoever reads filters tries them out, and takes one."""
    return int(value_of(connection, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))


@pytest.fixture
def source(scene: MakeScene) -> Iterator[tuple[Connection, MakeReader]]:
    """A connection, and what makes a reader whose plan was read before a statement."""
    s = scene(DEFINITIONS)
    settings = load_settings(s.project.write())

    def make(meanwhile: str) -> PlanReader:
        definitions = read_definitions(settings)
        before = whole_digest(gateway, definitions)
        plan = read_plan(settings, gateway, definitions)
        connection.execute(meanwhile.encode())
        watermark = Watermark(ZERO_LSN, 1, definitions.fingerprint, ())
        return PlanReader(settings, gateway, definitions, plan, watermark, before=before)

    with s.connect() as connection, connect(settings.source.dsn) as gateway:
        connection.execute(TABLES)
        yield connection, make


@pytest.mark.parametrize(
    "change",
    [
        "ALTER PUBLICATION p SET TABLE t WHERE (a > 6)",
        "ALTER PUBLICATION p ADD TABLE u",
        "ALTER PUBLICATION p SET (publish = 'insert')",
        "ALTER TABLE t RENAME TO renamed; CREATE TABLE t (LIKE renamed INCLUDING ALL)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    ],
)
def test_what_has_changed_before_the_first_look_is_seen(
    source: tuple[Connection, MakeReader], change: str
) -> None:
    reader = source[1](change)
    assert reader.current_plan(None, None) is not None
    assert reader.current_plan(None, None) is None


def test_a_plan_that_is_as_it_was_is_not_read_again(source: tuple[Connection, MakeReader]) -> None:
    connection, make = source
    readers = []

    def looks_take_no_xid() -> bool:
        reader = make(
            "INSERT INTO t SELECT count(*), 1 FROM t; ANALYZE t;"
            "CREATE TEMPORARY TABLE v (a int); DROP TABLE v"
        )
        readers.append(reader)
        before = next_xid(connection)
        assert reader.current_plan(None, None) is None
        assert reader.current_plan(None, None) is None
        return next_xid(connection) == before

    # Other tests write to this server, but not all the time; reading a plan always takes one.
    wait_until(looks_take_no_xid, 60, "looks that take no transaction id")
    reader = readers[-1]
    connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a > 6)")
    assert reader.current_plan(None, None) is not None


def test_a_type_that_is_altered_in_a_loop_costs_one_read_of_the_catalog(
    source: tuple[Connection, MakeReader],
) -> None:
    connection, make = source
    connection.execute("CREATE TYPE mood AS ENUM ('a'); CREATE TABLE m (a mood PRIMARY KEY)")
    connection.execute("ALTER PUBLICATION p ADD TABLE m")
    mood = value_of(connection, "SELECT 'mood'::regtype::oid")
    nothing: dict[str, list[int]] = {"publications": [], "tables": [], "trees": []}
    said = {"altered": nothing | {"types": [mood]}, "as_of": "F/0", "parents": []}
    content = json.dumps(said | {"publications": {}}).encode()

    def reads(reader: PlanReader, xid: int) -> bool:
        before = next_xid(connection)
        reader.apply_ddl(content, xid)
        return next_xid(connection) > before

    def one_read() -> bool:
        reader = make("ALTER TYPE mood RENAME VALUE 'a' TO 'b'")
        connection.execute("ALTER TYPE mood RENAME VALUE 'b' TO 'a'")
        altered = next_xid(connection) - 1
        with other.transaction():  # its commit may be flushed, and is in no snapshot yet
            unseen = int(value_of(other, "SELECT pg_current_xact_id()::text"))
            found = [reads(reader, altered) for _ in range(4)]
        return [*found, reads(reader, unseen)] == [True, False, False, False, True]

    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        # Other tests write to this server, but not all the time.
        wait_until(one_read, 60, "one read of the catalog for what it had")


def test_a_publication_that_is_altered_while_the_watch_is_interrupted_is_followed(
    scene: MakeScene,
) -> None:
    s = scene(
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        definitions={"watch_interval_s": 0.1},
    )
    with s.connect() as connection:
        connection.execute(TABLES)
        connection.execute("INSERT INTO u VALUES (1)")
        gateway = s.project.start()
        gateway.wait_until_copied()
        # It comes back after a pause.
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name LIKE 'pgsluice reload%' AND datname = current_database()"
        )
        connection.execute("ALTER PUBLICATION p ADD TABLE u")
        wait_for_copy_marker(s, "u", "ready")
        assert gateway.terminate() == 0, gateway.log()
    assert s.rebuilt("u") == [(1,)]


def test_an_owner_who_alters_what_a_filter_reads_stops_one_table(scene: MakeScene) -> None:
    s = scene(
        "CREATE PUBLICATION f FOR TABLE t WHERE (a IN (SELECT a FROM u WHERE kind = 1));"
        "CREATE PUBLICATION g FOR TABLE v; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION f, g;"
    )
    settings = load_settings(s.project.write())
    with s.connect() as connection, connect(settings.source.dsn) as gateway:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE v (a int PRIMARY KEY);"
            "CREATE TABLE u (a int PRIMARY KEY, kind int); ALTER TABLE u REPLICA IDENTITY FULL"
        )
        definitions = read_definitions(settings)
        plan = read_plan(settings, gateway, definitions)
        states = copy_states(plan, (), reconcile=True)
        watermark = Watermark(Lsn(1), 1, definitions.fingerprint, states)
        # The server can compare it, and the gateway cannot.
        connection.execute("ALTER TABLE u ALTER kind TYPE oid USING kind::oid")

        with pytest.raises(FilterError) as refused:  # of a file that is new
            read_plan(settings, gateway, definitions)
        plan = read_plan(settings, gateway, definitions, watermark)

    (held,) = plan.held
    assert (held.schema, held.table) == ("public", "t")
    assert held.reason == refused.value.message
    assert 'on public.u is not evaluated by the gateway: column "kind" of type oid' in held.reason
    assert [plan.tables[oid].name for _, oid in plan.targets] == ["v"]
