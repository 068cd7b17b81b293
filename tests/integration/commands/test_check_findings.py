"""What `pgsluice check` finds is named once, for what it is, and `run` says the same."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devkit.embedded.processes import free_port
from gateway.commands.check import values
from tests.support.backends.broker import create_topics
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

PLAIN = "CREATE PUBLICATION p FOR TABLE wide; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"


def test_large_values_a_filter_beyond_the_identity_and_a_role_that_only_reads(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int PRIMARY KEY, b text, c int)")
    s = scene(PLAIN)
    large = s.cli("check")
    only_reads = psycopg.conninfo.make_conninfo(
        database.dsn, options="-c default_transaction_read_only=on"
    )
    environment = {"PGSLUICE_SOURCE__DSN": only_reads}
    reading = [
        s.cli(*command, environment=environment) for command in (["check"], ["run", "--endpos=0/1"])
    ]
    s.project.definitions = s.project.definitions.replace("TABLE wide", "TABLE wide WHERE (c > 1)")
    filtered = s.cli("check")

    assert "table public.wide: large values of b that an UPDATE leaves as they" in large.out
    for ended in reading:
        said = ended.out + ended.err
        assert ended.code == 1, said
        assert "default_transaction_read_only is on" in said
        assert "standby" not in said
    assert filtered.code == 1, filtered.out
    assert filtered.out.count("REPLICA IDENTITY FULL lets a filter") == 1
    assert filtered.out.count("insert_only") == 1


def test_columns_of_the_types_table_for_which_it_decides_nothing(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int PRIMARY KEY, n numeric(9,2), o uuid)")
    s = scene(PLAIN.replace("wide;", "wide (a, n);"))
    columns = ("a", "n", "o", "gone")
    s.project.extra = {"types.columns": {f"public.wide.{c}": "text" for c in columns}}

    said = s.cli("check").out

    assert "[types.columns] has public.wide.a, of type integer, which is carried in one way" in said
    assert "[types.columns] has public.wide.gone, and no such column is published" in said
    assert "[types.columns] has public.wide.o, and no such column is published" in said
    assert "public.wide.n" not in said


def test_columns_of_the_types_table_that_another_group_publishes_or_whose_table_is_held(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        for name in ("wide", "other"):
            connection.execute(f"CREATE TABLE {name} (a uuid PRIMARY KEY)".encode())
        connection.execute("CREATE SCHEMA late; CREATE TABLE late.nameless (a uuid)")
    slot = f"gw_{database.name}"
    s = scene(
        "CREATE PUBLICATION p FOR TABLE wide; CREATE PUBLICATION q FOR TABLE other,"
        " TABLES IN SCHEMA late; CREATE SUBSCRIPTION {s}_p CONNECTION '' PUBLICATION p;"
        " CREATE SUBSCRIPTION {s}_q CONNECTION '' PUBLICATION q;",
        **{"source.groups": {"one": [f"{slot}_p"], "two": [f"{slot}_q"]}},
    )
    columns = ("public.wide.a", "public.other.a", "late.nameless.a")
    s.project.extra = {**s.project.extra, "types.columns": dict.fromkeys(columns, "text")}

    said = s.cli("check").out

    assert "table late.nameless" in said and "is held" in said
    assert "no such column is published" not in said


def test_values_that_avro_cannot_carry_are_found_in_the_tables(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE DOMAIN hour AS time")
        connection.execute(
            "CREATE TABLE wide (a int PRIMARY KEY, t time, i int[], j int[], k hour[],"
            " n numeric(9,2)[], plain time[], s interval, u interval[], calm interval[])"
        )
        connection.execute(
            "INSERT INTO wide VALUES (1, '24:00', '{{1,2}}', '{1}', NULL, NULL, '{12:00,NULL}',"
            " '1 day', '{NULL}', '{1 day}'),"
            " (2, '12:00', '{}', NULL, '{12:00,24:00}', '{1,NaN}', '{}',"
            " 'infinity', '{1 day,-infinity}', NULL)"
        )
    s = scene(PLAIN, types={"time": "native", "arrays": "native", "interval": "native"})

    said = s.cli("check").out

    assert "table public.wide: column t has 24:00, which Avro cannot carry: the gateway" in said
    assert "table public.wide: column i has arrays of several dimensions" in said
    assert "table public.wide: column k has arrays with 24:00" in said
    assert "table public.wide: column n has arrays with NaN" in said
    assert "table public.wide: column s has an infinite value" in said
    assert "table public.wide: column u has arrays with an infinite value" in said
    assert '[types.columns] "public.wide.n" = "text"' in said
    assert "column j" not in said
    assert "column plain" not in said
    assert "column calm" not in said


def test_values_of_masked_columns_are_not_searched_unless_somebody_has_them_without_a_mask(
    scene: Callable[..., Scene], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSLUICE_COLUMNS__HASH_KEY", "a key of the tests, of forty characters.")
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE wide (a int[] PRIMARY KEY, t time, u time, i int[], d date)"
        )
        connection.execute("INSERT INTO wide VALUES ('{1}', '24:00', '24:00', '{{1}}', now())")
    s = scene(
        f"{PLAIN} CREATE SUBSCRIPTION {{s}}_few CONNECTION '' PUBLICATION few;"
        "CREATE PUBLICATION few FOR TABLE wide (a, u);",
        types={"time": "native", "arrays": "native"},
    )
    names = {"wide.a": "hash", "wide.t": "hash", "wide.u": "null", "wide.i": "null"}
    names |= {"wide.d": "hash"}
    masks = {f"{s.slot}.public.{name}": mask for name, mask in names.items()}
    masks[f"{s.slot}_few.public.wide.a"] = "hash"
    s.project.extra = {
        **s.project.extra,
        "columns": {"masks": masks},
        "types.columns": {"public.wide.d": "text", "public.wide.i": "native"},
    }

    said = s.cli("check").out

    assert said.count("which Avro cannot carry") == 1
    assert "table public.wide: column u has 24:00, which Avro cannot carry" in said
    assert "is part of the key" not in said
    assert "[types.columns] has public.wide.d, which is text: its mask is hash" in said
    assert "public.wide.i" not in said


def test_what_connect_s_times_and_rows_without_an_envelope_cannot_carry_is_found(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE wide (a int PRIMARY KEY, m timestamp, n timestamp[], calm timestamp,"
            " i int[], w text)"
        )
        connection.execute(
            "INSERT INTO wide VALUES"
            " (1, 'infinity', '{-infinity,2024-01-01}', '2024-01-01', '{1}', 'w')"
        )
    s = scene(
        PLAIN,
        types={"arrays": "native"},
        envelope={"format": "debezium", "time_precision": "connect"},
    )

    connect = s.cli("check").out
    s.project.extra = {"types": {"arrays": "native"}, "envelope": {"format": "row"}}
    row = s.cli("check").out

    assert "table public.wide: column m has infinity, which Avro cannot carry" in connect
    assert "table public.wide: column n has arrays with infinity" in connect
    assert "column calm has" not in connect
    assert "has infinity" not in row
    assert "large values of i, n that an UPDATE leaves as they are are null in the" in row
    assert "only `__unchanged`" not in connect


def test_an_array_in_a_key_is_named_unless_it_is_text_in_any_case(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int[] PRIMARY KEY, i int[])")
    s = scene(PLAIN, types={"arrays": "native"})
    said = s.cli("check").out
    s.project.extra = {"types": {"arrays": "native"}, "types.columns": {"public.wide.a": "text"}}
    as_text = s.cli("check").out

    assert (
        "WARNING table public.wide: column a, of type integer[], is part of the key, and therefore"
        " carried as text, in the value as well"
    ) in said
    assert "column i, of" not in said
    assert "is part of the key" not in as_text


def test_a_table_that_cannot_be_searched_is_named_and_the_next_one_is_searched(
    scene: Callable[..., Scene], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "_TABLE_S", 0.5)
    with database.connect() as connection:
        for name in ("busy", "wide"):
            connection.execute(f"CREATE TABLE {name} (a int PRIMARY KEY, t time)".encode())
        connection.execute("INSERT INTO wide VALUES (1, '24:00')")
    s = scene(PLAIN.replace("wide;", "busy, wide;"), types={"time": "native"})

    with database.connect() as holder, holder.transaction():
        holder.execute("LOCK TABLE busy IN ACCESS EXCLUSIVE MODE")
        said = s.cli("check").out
    monkeypatch.setattr(values, "_ALL_S", 0)
    hurried = s.cli("check").out

    assert "WARNING table public.busy was not searched for values that Avro cannot carry" in said
    assert "statement timeout" in said
    assert "table public.wide: column t has 24:00" in said
    for name in ("busy", "wide"):
        assert f"WARNING table public.{name} was not searched" in hurried


def test_a_progress_topic_of_several_partitions(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int PRIMARY KEY)")
    s = scene(PLAIN)
    progress = f"{s.slot}.progress"
    topic = NewTopic(progress, 2, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": kafka})
    create_topics(admin, [topic])

    for command in (["check"], ["run", "--endpos=0/1"]):
        ended = s.cli(*command)

        assert ended.code == 1, ended.out + ended.err
        assert f"topic {progress} has 2 partitions, 1 expected" in ended.out + ended.err


def test_services_that_are_away_are_one_finding_each(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int PRIMARY KEY, b bytea)")
    nowhere = f"127.0.0.1:{free_port()}"
    away = {
        "kafka": {"bootstrap.servers": nowhere},
        "registry": {"url": f"http://{nowhere}"},
    }
    s = scene(PLAIN, **away)
    both = s.cli("check")
    s.project.extra = {**away, "source": {"dsn": f"postgresql://postgres@{nowhere}/x"}}
    all_three = s.cli("check")

    for ended, sources in ((both, 0), (all_three, 1)):
        errors = [line for line in ended.out.splitlines() if line.startswith("ERROR")]
        parts = sorted(line.split()[1] for line in errors)
        assert parts == ["kafka:", "registry:", *["source:"] * sources], ended.out
        assert ended.code == 1
        assert ended.out.count("[kafka]") == 1
        assert "the topics have not been checked" in ended.out
    assert "large values of b" in both.out  # whatever needs the source alone goes on


def test_a_missing_table_is_named_while_kafka_is_away(scene: Callable[..., Scene]) -> None:
    s = scene(PLAIN, kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"})

    said = s.cli("check").out

    assert 'relation "wide" does not exist' in said
    assert said.count("[kafka]") == 1


def test_a_server_for_filters_that_does_not_answer_hides_no_other_mistake(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE wide (a int, b text, t time, PRIMARY KEY (a, b))")
        connection.execute("INSERT INTO wide VALUES (1, 'x', '24:00')")
    nowhere = psycopg.conninfo.make_conninfo(database.dsn, port=str(free_port()))
    s = scene(
        PLAIN.replace("TABLE wide", "TABLE wide WHERE (b ~ 'x')"),
        filters={"dsn": nowhere},
        types={"time": "native"},
    )

    ended = s.cli("check")

    assert ended.code == 1
    assert "ERROR   row filters: " in ended.out
    assert "table public.wide: column t has 24:00" in ended.out
