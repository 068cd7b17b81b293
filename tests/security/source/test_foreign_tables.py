"""A table that any role may create stops nothing: it is held with its reason, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Connection, Scene, value_of, wait_until_confirmed
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
ALL_TABLES = (
    "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
IN_DATABASE = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION whole;"
QUICK = {"watch_interval_s": 0.5}

LONG = "$" * 60
HOSTILE = f"""
    CREATE TABLE keyless (a int);
    CREATE TABLE "{LONG}" (a int PRIMARY KEY);
    CREATE SCHEMA a_b; CREATE TABLE a_b.c (a int PRIMARY KEY);
    CREATE TABLE refused (a int PRIMARY KEY, b text);
    CREATE TABLE hidden (a int PRIMARY KEY);
    ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
"""
HELD = {
    "public.keyless": "does not have a replica identity",
    f"public.{LONG}": "Kafka allows 249",
    "a_b.c": "collides with",
    "public.refused": "refuses the schema",
}


@contextmanager
def role(connection: Connection, database: Database, name: str, *options: str) -> Iterator[str]:
    """A role of this test's own; yields its name."""
    full = f"{name}_{database.name}"
    connection.execute(f"CREATE ROLE {full} LOGIN {' '.join(options)}".encode())
    connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {full}".encode())
    connection.execute(f"GRANT CREATE ON SCHEMA public TO {full}".encode())
    try:
        yield full
    finally:
        connection.execute(f"DROP OWNED BY {full} CASCADE; DROP ROLE {full}".encode())


def as_role(database: Database, name: str) -> Connection:
    """A session of another role."""
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=name)
    return psycopg.connect(dsn, autocommit=True)


def held(scene: Scene) -> dict[str, str]:
    """The tables that `status` calls held, and why; it must then end with 1."""
    status = scene.cli("status")
    lines = [line.partition(": held, ") for line in status.out.splitlines()]
    found = {name.rpartition(": ")[2]: reason for name, is_held, reason in lines if is_held}
    assert not found or status.code == 1, status.out
    return found


def wait_for_held(scene: Scene, process: GatewayProcess, expected: dict[str, str]) -> None:
    """Wait until exactly the tables of `expected` are held, each with its reason."""

    def is_so() -> bool:
        assert not process.ended(), process.log()
        found = held(scene)
        return found.keys() == expected.keys() and all(
            reason in found[table] for table, reason in expected.items()
        )

    try:
        wait_until(is_so, 60, f"{list(expected)} to be held")
    except AssertionError as error:
        raise AssertionError(f"{error}: {held(scene)}\n{process.log()}") from None


def published(scene: Scene, connection: Connection, process: GatewayProcess, row: int) -> None:
    """Insert into t; wait until it is in Kafka, which shows that the others go on."""
    connection.execute("INSERT INTO t VALUES (%s)", [row])
    wait_until_confirmed(connection, scene.slot)
    assert not process.ended(), process.log()
    assert (row,) in scene.rebuilt("t")


@pytest.mark.parametrize("definitions", [ALL_TABLES, IN_DATABASE], ids=["file", "database"])
def test_hostile_tables_are_held_at_a_first_start_a_restart_and_while_it_runs(
    scene: MakeScene, database: Database, registry: str, definitions: str
) -> None:
    with (
        database.connect() as connection,
        role(connection, database, "mallory") as mallory,
        as_role(database, mallory) as attacker,
    ):
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        connection.execute("CREATE PUBLICATION whole FOR ALL TABLES")
        connection.execute("CREATE SCHEMA a; CREATE TABLE a.b_c (a int PRIMARY KEY)")
        s = scene(definitions, definitions=QUICK)
        client = SchemaRegistryClient({"url": registry})
        client.register_schema(f"{s.topic('refused')}-value", Schema('"string"', "AVRO"))
        attacker.execute(HOSTILE.encode())
        process = s.project.start()
        wait_for_held(s, process, HELD)
        published(s, connection, process, 2)

        attacker.execute("CREATE TABLE second (a int)")
        wait_for_held(s, process, {**HELD, "public.second": "does not have a replica identity"})
        connection.execute("CREATE TABLE later (a int PRIMARY KEY); INSERT INTO later VALUES (7)")
        wait_until(lambda: "public.later: ready" in s.cli("status").out, 60, "later to be copied")
        attacker.execute("ALTER TABLE second ADD PRIMARY KEY (a)")
        attacker.execute("DROP TABLE keyless")
        left = {table: why for table, why in HELD.items() if table != "public.keyless"}
        wait_for_held(s, process, left)
        published(s, connection, process, 3)

        attacker.execute("CREATE TABLE turns (a int PRIMARY KEY, b int)")
        wait_until(lambda: "public.turns: ready" in s.cli("status").out, 60, "turns to be copied")
        attacker.execute("ALTER TABLE turns ALTER COLUMN b TYPE text")
        attacker.execute("INSERT INTO turns VALUES (1, 'x')")
        left["public.turns"] = "refuses the schema"
        wait_for_held(s, process, left)
        published(s, connection, process, 5)
        assert process.terminate() == 0, process.log()

        attacker.execute("CREATE TABLE locked (a int PRIMARY KEY)")
        with as_role(database, mallory) as locker:
            locker.execute("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
            process = s.project.start()
            wait_for_held(s, process, {**left, "public.locked": "a lock on it is held by pid"})
            published(s, connection, process, 4)
        wait_for_held(s, process, left)
        assert s.rebuilt("later") == [(7,)]
        assert process.terminate() == 0, process.log()


def test_a_table_that_the_gateways_role_does_not_own_is_held_with_what_to_run(
    scene: MakeScene, database: Database
) -> None:
    with (
        database.connect() as connection,
        role(connection, database, "mallory") as mallory,
        role(connection, database, "gateway", "REPLICATION") as gateway,
        as_role(database, mallory) as attacker,
        as_role(database, gateway) as owner,
    ):
        owner.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        dsn = psycopg.conninfo.make_conninfo(database.dsn, user=gateway)
        s = scene(ALL_TABLES, source={"dsn": dsn}, definitions=QUICK)
        process = s.project.start()
        wait_until(lambda: "public.t: ready" in s.cli("status").out, 60, "t to be copied")

        attacker.execute("CREATE TABLE m (a int PRIMARY KEY); INSERT INTO m VALUES (1)")
        wait_for_held(s, process, {"public.m": "must be owner of table public.m"})
        published(s, connection, process, 2)
        assert s.cli("reload").code == 0
        checked = s.cli("check")
        assert checked.code == 0, checked.out  # nothing that stops a start, or a change
        assert "is held: must be owner of table public.m" in checked.out
        added, granted = s.cli("check", "--sql").out.splitlines()
        assert added.removesuffix(";") in checked.out and granted.removesuffix(";") in checked.out
        connection.execute(added.encode())
        wait_for_held(s, process, {"public.m": "permission denied for table public.m"})
        # Its owner has done half of what is to be done: no start undoes it, or asks for it again.
        assert process.terminate() == 0, process.log()
        process = s.project.start()
        published(s, connection, process, 3)
        assert granted == f"GRANT SELECT ON public.m TO {gateway};"
        assert s.cli("check", "--sql").out.splitlines() == [granted]
        attacker.execute(granted.encode())
        # At the next look; what is only tried now and then, ever more rarely, would take longer.
        wait_until(lambda: "public.m: ready" in s.cli("status").out, 10, "m to be copied")

        # One whose owner would have the role widened by whoever runs what is printed.
        attacker.execute(
            "CREATE TABLE r (a int PRIMARY KEY); ALTER TABLE r ENABLE ROW LEVEL SECURITY"
        )
        wait_for_held(s, process, {"public.r": "must be owner of table public.r"})
        lines = s.cli("check", "--sql").out.splitlines()
        assert [line.split()[0] for line in lines] == ["ALTER", "GRANT", "--"]
        assert f"ALTER ROLE {gateway} BYPASSRLS; (row security of table public.r;" in lines[2]
        for line in lines:
            connection.execute(line.encode())
        wait_for_held(s, process, {"public.r": "row security hides rows of public.r"})
        widened = f"SELECT rolbypassrls FROM pg_roles WHERE rolname = '{gateway}'"
        assert value_of(connection, widened) is False
        assert s.cli("check", "--sql").out.splitlines() == lines[2:]
        attacker.execute("DROP TABLE r")
        wait_for_held(s, process, {})

        # One that cannot be updated as long as it is published does not stay for that.
        attacker.execute("CREATE TABLE k (a int PRIMARY KEY); INSERT INTO k VALUES (1)")
        wait_for_held(s, process, {"public.k": "must be owner of table public.k"})
        added, _ = s.cli("check", "--sql").out.splitlines()
        connection.execute(added.encode())
        wait_for_held(s, process, {"public.k": "permission denied for table public.k"})
        attacker.execute("ALTER TABLE k DROP CONSTRAINT k_pkey")
        wait_for_held(s, process, {"public.k": "does not have a replica identity"})
        wait_until(lambda: _updates(attacker), 60, "k to have left the publication")
        assert process.terminate() == 0, process.log()
        process = s.project.start()
        published(s, connection, process, 4)
        assert s.rebuilt("m") == [(1,)]
        assert process.terminate() == 0, process.log()


def _updates(session: Connection) -> bool:
    """Whether k can be updated."""
    try:
        session.execute("UPDATE k SET a = a + 1")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    return True
