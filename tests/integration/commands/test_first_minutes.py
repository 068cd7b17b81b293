"""``init``, ``explain`` and ``tail``: from a database to a topic that one can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from gateway.config import load_settings
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, cli, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE t (a int PRIMARY KEY, c text, d numeric(10, 2));
ALTER TABLE t REPLICA IDENTITY FULL;
CREATE TABLE keyless (a int);
CREATE UNLOGGED TABLE scratch (a int PRIMARY KEY);
CREATE TABLE "Odd ""name" (id int PRIMARY KEY);
CREATE TABLE tree (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE tree_nsw PARTITION OF tree FOR VALUES IN ('NSW');
INSERT INTO t VALUES (1, 'NSW', 1.50), (9, 'VIC', NULL);
INSERT INTO tree VALUES (7, 'NSW');
ANALYZE t;
"""


def test_what_init_writes_is_served_as_it_is(
    database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    with database.connect() as connection:
        connection.execute(TABLES.encode())
    name = role = f"i_{database.name}"
    with database.connect() as connection:
        connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 's3cret'".encode())
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role, password="s3cret")

    made = cli(
        "init", dsn, "--folder", str(folder), "--subscription", name,
        "--kafka", kafka, "--registry", registry,
    )  # fmt: skip
    again = cli("init", dsn, "--folder", str(folder))
    checked = cli("check", "--config", str(folder / "pgsluice.toml"))

    assert made.code == 0, made.err
    config = folder / "pgsluice.toml"
    assert made.out.splitlines()[-1] == (
        f"next: set [kafka] and [registry] in {config}, then: pgsluice check --config {config}"
    )
    definitions = (folder / "replication.sql").read_text()
    assert '"public"."t",' in definitions
    assert "-- key (a); about 2 rows, " in definitions
    assert '"public"."Odd ""name"' in definitions
    assert '"public"."tree"' in definitions and "tree_nsw" not in definitions
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL;' in definitions
    assert "does not have a replica identity and publishes updates" in definitions
    assert "-- public.scratch: unlogged" in definitions
    settings = (folder / "pgsluice.toml").read_text()
    assert "s3cret" not in settings + definitions + made.out
    assert load_settings(folder / "pgsluice.toml", {}).warnings == ()
    assert checked.code == 0, checked.out
    assert "definitions: 1 publication, 1 subscription" in checked.out
    assert (again.code, "exists" in again.err) == (1, True)
    trigger = (folder / "event-trigger.sql").read_text()
    assert "CREATE EVENT TRIGGER pgsluice_altered ON ddl_command_end" in trigger
    truncates = (folder / "truncate-triggers.sql").read_text()
    assert '"keyless"' not in truncates and '"scratch"' not in truncates
    with database.connect() as connection:
        connection.execute(truncates.encode())
        connection.execute("TRUNCATE tree, t")
        triggers = connection.execute(
            "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'pgsluice_delete_rows'"
        ).fetchall()
    assert {name for (name,) in triggers} == {"t", '"Odd ""name"', "tree", "tree_nsw"}


DEFINITIONS = """
CREATE PUBLICATION cheap FOR TABLE t WHERE (d < 5);
CREATE PUBLICATION trees FOR TABLE tree WHERE (region = 'NSW')
    WITH (publish_via_partition_root = true);
CREATE PUBLICATION inserts FOR TABLE t WHERE (c ~ '^V') WITH (publish = 'insert');
CREATE PUBLICATION risky FOR TABLE t WHERE (10 / (a - 9) > 1);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION cheap, trees, inserts;
CREATE SUBSCRIPTION {s}_risky CONNECTION '' PUBLICATION risky;
"""


def test_explain_says_who_takes_a_row_and_why(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
    s = scene(DEFINITIONS)

    by_key, by_pair = s.cli("explain", "t", "1"), s.cli("explain", "public.t", "a = 9")
    given = s.cli("explain", "t", "(4,Victoria,100)")
    as_json = s.cli("explain", "t", '{"a": 8, "d": 1}')
    leaf = s.cli("explain", "tree", "id=7,region=NSW")

    assert by_key.code == 0, by_key.err
    assert by_key.out.splitlines()[0] == "public.t: a=1 c=NSW d=1.50"
    assert f"  {s.slot}: receives it (INSERT, UPDATE, DELETE) as {s.topic('t')}" in by_key.out
    assert f"  {s.slot}_risky: does not receive it (INSERT, UPDATE, DELETE)" in by_key.out
    assert "cheap (INSERT, UPDATE, DELETE): (d < (5)::numeric) is true" in by_key.out
    assert "inserts (INSERT): (c ~ '^V'::text) is false" in by_key.out
    assert "evaluated here" in by_key.out and "evaluated by the server: " in by_key.out
    assert f"  {s.slot}: receives it (INSERT) as" in by_pair.out
    assert "does not receive it (UPDATE, DELETE)" in by_pair.out
    assert "(d < (5)::numeric) is null, which does not pass" in by_pair.out
    assert "is an error: division by zero" in by_pair.out
    assert "receives it (INSERT) as" in given.out
    assert f"  {s.slot}: receives it (INSERT, UPDATE, DELETE)" in as_json.out
    assert as_json.out.splitlines()[:2] == [
        "public.t: a=8 c=NULL d=1.00",
        "  not given, so NULL: c",
    ]
    assert f"receives it (INSERT, UPDATE, DELETE) as {s.slot}.public.tree\n" in leaf.out
    assert f"  {s.slot}_risky: does not publish it" in leaf.out


@pytest.mark.parametrize(
    ("table", "row", "why", "code"),
    [
        ("nowhere", "1", 'no subscription publishes a table "nowhere"', 1),
        ("keyless", "1", 'no subscription publishes a table "keyless"', 1),
        ("t", "77", "has no row with this key now", 1),
        ("t", "b=1", "public.t and its value\nhint: its columns are a, c, d", 2),
        ("t", "(x,,)", "the row does not read", 2),
        ("t", "{", "the row is not JSON", 2),
        ("tree", "7", "has 2 columns", 2),
        ("t", "(1,NSW)", "the row has 2 values, public.t has 3 columns", 2),
        ("t", '{"a": 8, "regoin": 1}', "public.t has no column 'regoin'", 2),
        ("tree", '{"regoin": "NSW"}', "did you mean 'region'?", 2),
    ],
)
def test_explain_refuses_what_it_cannot_read(
    scene: MakeScene, database: Database, table: str, row: str, why: str, code: int
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())

    ended = scene(DEFINITIONS).cli("explain", table, row)

    assert ended.code == code
    assert why in ended.err


def test_tail_prints_what_was_published(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene("CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION ''"
                  " PUBLICATION p;")  # fmt: skip
        s.run_to("0/1")
        connection.execute("UPDATE t SET d = 2 WHERE a = 1")
        connection.execute("UPDATE t SET a = 3 WHERE a = 9")
        connection.execute("DELETE FROM t WHERE a = 3")
        s.run_to(current_lsn(connection))

    shown = s.cli("tail", f"{s.slot}.t", "--from-beginning", "--no-follow")
    rest = s.cli("tail", s.slot, "--no-follow")

    assert shown.code == 0, shown.err
    assert [line.partition(f"  {s.topic('t')}  ")[2] for line in shown.out.splitlines()] == [
        "TRUNCATE",
        "COPY a=1 c=NSW d=1.50",
        "COPY a=9 c=VIC d=NULL",
        "UPDATE a=1 c=NSW: d 1.50 -> 2.00",
        "UPDATE c=VIC d=NULL: a 9 -> 3",
        "DELETE a=3 c=VIC",
    ]
    assert (rest.code, rest.out) == (0, "")
    assert s.cli("tail", "nobody").code == 1
