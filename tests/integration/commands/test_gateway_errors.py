"""What goes wrong is said in a sentence that names the key or the place: never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devkit.embedded.processes import free_port
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    cli,
    current_lsn,
    reloads,
    wait_for_reload,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
COMMANDS = (
    (),
    ("demo",),
    ("run",),
    ("consume",),
    ("check",),
    ("schemas",),
    ("status",),
    ("slot",),
    ("slot", "drop"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_there(command: tuple[str, ...]) -> None:
    ended = cli(*command, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert "usage: pgsluice" in ended.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "required"),
        (("frobnicate",), "invalid choice"),
        (("tail",), "SUBSCRIPTION"),
        (("run", "--config", "x", "--endpos", "12"), "--endpos"),
        (("slot",), "required"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], text: str) -> None:
    ended = cli(*arguments)

    assert ended.code == 2
    assert text in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "neither pgsluice.toml in this folder nor "),
        (("--config", "absent.toml"), "absent.toml does not exist"),
    ],
    ids=["by default", "as named"],
)
def test_a_missing_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    ended = cli("run", *arguments)

    assert ended.code == 1
    assert said in ended.err
    assert "pgsluice init DSN" in ended.err


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"source": {"dns": "x"}}, "source.dns: unknown key; did you mean 'dsn'?"),
        ({"kafak": {"a": "b"}}, "[kafak]: unknown table"),
        ({"source": {"dsn": "post gres"}}, "source.dsn: not a PostgreSQL connection string"),
        ({"definitions": {"file": "absent.sql"}}, "definitions.file: the file"),
        ({"kafka": {"acks": "1"}}, "kafka.acks: must not be set"),
        ({"kafka": {"lingr.ms": "1"}}, "kafka.lingr.ms: librdkafka does not accept"),
        ({"registry": {"timeout": "soon"}}, "registry.timeout: not a number"),
    ],
)
def test_a_wrong_setting_is_named(
    scene: MakeScene, database: Database, extra: dict[str, Any], text: str
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    ended = scene(DEFINITIONS, **extra).cli("run", "--endpos", "0/1")

    assert ended.code == 1
    assert text in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("tables", "definitions", "text"),
    [
        ("t (a int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t;", "defines no subscription"),
        (
            "t (a int PRIMARY KEY)",
            "CREATE PUBLICATION p FOR TABEL t;",
            "invalid publication object list",
        ),
        ("u (a int PRIMARY KEY)", DEFINITIONS, 'relation "t" does not exist'),
        (
            "t (a int PRIMARY KEY, b int)",
            DEFINITIONS.replace("TABLE t", "TABLE t WHERE (b > 1)"),
            "Column used in the publication WHERE expression is not part of the replica identity",
        ),
        (
            "t (a int PRIMARY KEY, b int)",
            DEFINITIONS.replace("TABLE t", "TABLE t WHERE (b > 1)"),
            'cannot update table "t"\ncannot delete from table "t"\n'
            "line 1: CREATE PUBLICATION p FOR TABLE t WHERE",
        ),
        (
            "t (a int PRIMARY KEY, b xml)",
            DEFINITIONS.replace("TABLE t", "TABLE t WHERE (b IS DOCUMENT)"),
            "line 1",
        ),
        ("t (a int)", DEFINITIONS, 'cannot update table "t" because it does not have a replica'),
    ],
)
def test_definitions_that_cannot_be_served_are_refused(
    scene: MakeScene, database: Database, tables: str, definitions: str, text: str
) -> None:
    with database.connect() as connection:
        connection.execute(f"CREATE TABLE {tables}".encode())
    s = scene(definitions)

    ended = s.cli("run", "--endpos", "0/1")

    assert ended.code == 1
    assert text in ended.err
    assert "Traceback" not in ended.err
    checked = s.cli("check")
    assert checked.code == 1
    assert text.split("\n")[0] in checked.out


def test_a_table_without_identity_can_be_accepted_and_its_writes_go_on(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        s = scene(DEFINITIONS, definitions={"missing_identity": "insert_only"})
        s.run_to("0/1")
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("UPDATE t SET a = a + 10")
        connection.execute("DELETE FROM t WHERE a = 11")
        s.run_to(current_lsn(connection))

    assert s.rebuilt("t") == [(1,), (2,)]


def _down(**extra: Any) -> dict[str, Any]:
    return {"limits": {"retry_for_s": 0.2}, **extra}


def test_a_source_that_is_down_is_given_up_with_75(scene: MakeScene) -> None:
    dsn = f"postgresql://postgres:secret@127.0.0.1:{free_port()}/x"

    ended = scene(DEFINITIONS, **_down(source={"dsn": dsn})).cli("run")

    assert ended.code == 75
    assert "the source server cannot be reached" in ended.err
    assert "secret" not in ended.err and "Traceback" not in ended.err


def test_a_registry_that_is_down_is_given_up_with_75(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    url = f"http://127.0.0.1:{free_port()}"

    ended = scene(DEFINITIONS, **_down(registry={"url": url})).cli("run")

    assert ended.code == 75
    assert f"the schema registry at registry.url ({url}) cannot be reached" in ended.err
    assert "Traceback" not in ended.err


def test_a_kafka_that_is_down_is_given_up_with_75(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    s = scene(DEFINITIONS, **_down(kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"}))

    ended = s.cli("run")

    assert ended.code == 75
    assert '"bootstrap.servers" in [kafka]' in ended.err
    assert "Traceback" not in ended.err


def test_faulty_definitions_are_named_while_kafka_is_down(
    scene: MakeScene, database: Database
) -> None:
    """Only Kafka knows whether the table was there before; nobody should wait for it to be told."""
    s = scene(DEFINITIONS, **_down(kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"}))

    ended = s.cli("run")

    assert ended.code == 75
    assert 'relation \\"t\\" does not exist' in ended.err


def test_sigterm_is_obeyed_while_kafka_is_down(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    s = scene(DEFINITIONS, kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    gateway = s.project.start()
    gateway.wait_until_doing("retrying")

    assert gateway.terminate() == 0, gateway.log()


@pytest.mark.parametrize(
    ("role", "text"),
    [("nobody_such", "does not exist"), ("no_login", "is not permitted to log in")],
)
def test_a_role_that_may_not_connect_is_refused_with_1(
    scene: MakeScene, database: Database, role: str, text: str
) -> None:
    with database.connect() as connection:
        connection.execute(
            "DO $$BEGIN CREATE ROLE no_login; EXCEPTION WHEN duplicate_object THEN END$$"
        )
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)

    ended = scene(DEFINITIONS, source={"dsn": dsn}).cli("run")

    assert ended.code == 1
    assert text in ended.err


def test_definitions_that_change_and_are_put_back_lose_nothing(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)")
        s = scene(DEFINITIONS.replace("TABLE t", "TABLE t, u"))
        s.run_to("0/1")
        both = s.project.definitions
        s.project.definitions = both.replace("TABLE t, u", "TABLE t")
        connection.execute("INSERT INTO u VALUES (1)")
        s.run_to(current_lsn(connection))
        connection.execute("INSERT INTO u VALUES (2)")

        s.project.definitions = both
        before = reloads(s)
        process = s.project.start()
        wait_for_reload(s, before)
        assert process.terminate() == 0, process.log()
        s.run_to("0/1")  # what was not copied before the stop is copied now

    assert s.rebuilt("u") == [(1,), (2,)]


def test_topics_that_collide_are_refused(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            'CREATE TABLE a_b (a int PRIMARY KEY); CREATE SCHEMA "public_a";'
            "CREATE TABLE public_a.b (a int PRIMARY KEY)"
        )
        s = scene(DEFINITIONS.replace("TABLE t", "TABLE a_b, public_a.b"))

        ended = s.cli("run", "--endpos", "0/1")

        assert ended.code == 1
        assert "collide in Kafka" in ended.err and "topics.names" in ended.err


def test_the_environment_wins_over_the_file(
    scene: MakeScene, database: Database, kafka: str, tmp_path: Path
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    nowhere = f"127.0.0.1:{free_port()}"
    (tmp_path / "dsn").write_text(database.dsn + "\n")
    s = scene(
        DEFINITIONS,
        source={"dsn": f"postgresql://postgres@{nowhere}/x"},
        kafka={"bootstrap.servers": nowhere},
    )

    ended = s.cli(
        "run",
        "--endpos",
        "0/1",
        environment={
            "PGSLUICE_SOURCE__DSN_FILE": str(tmp_path / "dsn"),
            "PGSLUICE_KAFKA__BOOTSTRAP_SERVERS": kafka,
        },
    )

    assert ended.code == 0, ended.err
    assert len(s.read("t")) == 2
