"""Filters that the server evaluates, beside those that are evaluated here, in whole scenes.

Judged by native subscriptions of the same publications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.backends.servers import Connection, Database, DatabaseFactory
from tests.support.gateway.native_scene import NativeScene, Subscriber
from tests.support.gateway.process import Read
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn, value_of
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

majors = alternating(__name__, 16, 18)
MakeScene = Callable[..., Scene]

PEOPLE = (
    "id int, name text, tags text[], doc jsonb, at timestamptz, span interval, net inet,"
    " n numeric(10,2), bits bit(4), note text"
)
TABLES = f"""
CREATE TABLE people ({PEOPLE}, PRIMARY KEY (id));
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE TABLE keyed (id int, code varchar(20), note text, PRIMARY KEY (id, code));
ALTER TABLE keyed ALTER code SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL;
CREATE TABLE plain (a int PRIMARY KEY, b text);
"""
PUBLICATIONS = r"""
CREATE PUBLICATION p_name FOR TABLE people WHERE (id > 3 AND name ILIKE '%a%');
CREATE PUBLICATION p_order FOR TABLE people WHERE (name > 'm' OR n > 99.5);
CREATE PUBLICATION p_doc FOR TABLE people WHERE (doc @> '{"a": 1}' AND tags && '{x,y}');
CREATE PUBLICATION p_time FOR TABLE people
    WHERE ((at AT TIME ZONE 'Europe/Paris') >= '2024-07-01 02:00' AND span < '30 days 1 hour');
CREATE PUBLICATION p_net FOR TABLE people (id, net, bits)
    WHERE (net <<= '10.0.0.0/9' OR bits = B'1010') WITH (publish = 'insert');
CREATE PUBLICATION p_here FOR TABLE people WHERE (id % 7 = 0);
CREATE PUBLICATION k_code FOR TABLE keyed WHERE (code ~ '^\w-\w+[0-4]$' AND id <> 5);
CREATE PUBLICATION k_lower FOR TABLE keyed WHERE (lower(code) LIKE 'c-_7');
CREATE PUBLICATION plain FOR TABLE plain;
"""
SUBSCRIBERS = {
    "names": Subscriber(("p_name", "plain"), {"people": f"{PEOPLE}, PRIMARY KEY (id)",
                                              "plain": "a int PRIMARY KEY, b text"}),
    "mixed": Subscriber(("p_order", "p_here", "k_code"),
                        {"people": f"{PEOPLE}, PRIMARY KEY (id)",
                         "keyed": "id int, code varchar(20), note text, PRIMARY KEY (id, code)"}),
    "docs": Subscriber(("p_doc",), {"people": f"{PEOPLE}, PRIMARY KEY (id)"}),
    "times": Subscriber(("p_time", "k_lower"),
                        {"people": f"{PEOPLE}, PRIMARY KEY (id)",
                         "keyed": "id int, code varchar(20), note text, PRIMARY KEY (id, code)"}),
    "nets": Subscriber(("p_net",), {"people": "id int PRIMARY KEY, net inet, bits bit(4)"}),
}  # fmt: skip

ROWS = """
INSERT INTO people SELECT i, (ARRAY['Ann', 'bob', 'Çelik', 'mAx', NULL, 'zoë'])[i % 6 + 1],
    (ARRAY['{{x}}', '{{z,y}}', '{{}}', NULL])[i % 4 + 1]::text[],
    jsonb_build_object('a', i % 3, 'b', i), timestamptz '2024-06-25 UTC' + i * interval '3 hours',
    i * interval '15 hours', inet '10.0.0.0' + i::bigint * 100000, i * 1.5, (i % 16)::bit(4),
    repeat(md5(i::text), 100)
FROM generate_series({first}, {last}) AS i;
INSERT INTO keyed SELECT i % 50, 'c-' || i, repeat(md5(i::text), 100)
FROM generate_series({first}, {last}) AS i;
INSERT INTO plain SELECT i, 'row ' || i FROM generate_series({first}, {last}) AS i;
"""
CHANGES = (
    "UPDATE people SET name = 'new name' WHERE id % 5 = 0",
    "UPDATE people SET doc = doc || '{\"a\": 1}', tags = '{x}' WHERE id % 4 = 1",
    "UPDATE people SET n = n + 50, span = span - interval '1 day' WHERE id % 3 = 1",
    "UPDATE people SET id = id + 10000 WHERE id % 11 = 0",
    "UPDATE keyed SET code = upper(code), id = id + 1000 WHERE id % 10 = 2",
    "UPDATE keyed SET note = note || '!' WHERE id % 10 = 3",
    "UPDATE keyed SET code = code || '5' WHERE code ~ '1$'",
    "DELETE FROM people WHERE id % 13 = 0",
    "DELETE FROM keyed WHERE id % 13 = 0",
    "UPDATE plain SET b = 'x' WHERE a % 3 = 0",
)


def insert(first: int, last: int) -> Callable[[Connection], None]:
    return lambda connection: run(connection, ROWS.format(first=first, last=last))


def run(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def many_small_transactions(connection: Connection) -> None:
    for i in range(5000, 5080):
        run(connection, f"INSERT INTO plain VALUES ({i}, 'small')")
        run(connection, ROWS.format(first=i, last=i).split(";")[0])
        run(connection, f"UPDATE people SET name = 'Alma {i}' WHERE id = {i}")


def one_large_transaction(connection: Connection) -> None:
    with connection.transaction():
        insert(6000, 9000)(connection)
        run(connection, *CHANGES)
        connection.execute("SAVEPOINT s")
        run(connection, "DELETE FROM people", "UPDATE keyed SET code = 'gone' || code")
        connection.execute("ROLLBACK TO s")
        run(
            connection,
            "ALTER TABLE people ALTER name SET STATISTICS 50",
            "INSERT INTO people (id, name) VALUES (0, 'nana')",
        )


@majors
def test_the_tables_are_those_of_native_subscriptions(
    database: Database, make_database: DatabaseFactory, kafka: str, registry: str, tmp_path: Path
) -> None:
    with database.connect() as connection:
        run(connection, TABLES)
        insert(1, 300)(connection)
    NativeScene(database, make_database, kafka, registry, tmp_path).compare(
        PUBLICATIONS,
        SUBSCRIBERS,
        [
            lambda connection: run(connection, *CHANGES),
            many_small_transactions,
            insert(301, 500),
            one_large_transaction,
        ],
    )


DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t"
    " WHERE (a > 0 AND timezone(b, timestamp '2024-01-01') > '2023-12-31 22:00+00');"
    "CREATE PUBLICATION everything FOR TABLE t;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p{options};"
    "CREATE SUBSCRIPTION {s}_all CONNECTION '' PUBLICATION everything{options};"
)
QUARANTINE = {"on_error": {"filter": "quarantine"}}


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        yield connection


def facts(record: Read) -> tuple[Any, ...]:
    assert record.value is not None
    value = record.value
    return (value["op"], value["before"], value["after"], value["reason"], value["sqlstate"])


@majors
@pytest.mark.parametrize("options", ["", " WITH (binary = true)"], ids=["text", "binary"])
def test_rows_that_raise_are_quarantined_with_the_servers_words(
    scene: MakeScene, source: Connection, options: str
) -> None:
    run(source, "INSERT INTO t VALUES (0, 'unread'), (1, 'copied'), (2, 'UTC'), (3, 'Asia/Tokyo')")
    s = scene(DEFINITIONS.replace("{options}", options), **QUARANTINE)
    s.run_to("0/1")
    with source.transaction():
        run(
            source,
            "INSERT INTO t SELECT i, 'UTC' FROM generate_series(10, 1500) AS i",
            "UPDATE t SET b = 'Asia/Tokyo' WHERE a > 1200",
            "INSERT INTO t VALUES (4, 'four'), (-4, 'four')",
            "UPDATE t SET b = 'two' WHERE a = 2",
            "UPDATE t SET b = 'UTC' WHERE a = 1",
            "UPDATE t SET a = -a WHERE a = 10",
        )
    s.run_to(current_lsn(source))

    words = 'time zone "{}" not recognized'
    assert [facts(record) for record in s.reader.read(f"{s.slot}.error")] == [
        ("r", None, {"a": "1", "b": "copied"}, words.format("copied"), "22023"),
        ("c", None, {"a": "4", "b": "four"}, words.format("four"), "22023"),
        ("u", {"a": "2", "b": "UTC"}, {"a": "2", "b": "two"}, words.format("two"), "22023"),
        ("u", {"a": "1", "b": "copied"}, {"a": "1", "b": "UTC"}, words.format("copied"), "22023"),
    ]
    expected = [(i, "UTC") for i in (2, *range(11, 1201))]
    assert s.rebuilt("t") == sorted(expected, key=repr)
    for subscription in (s.slot, f"{s.slot}_all"):
        assert_exactly_once(s, ["t"], subscription)


def test_a_row_that_raises_stops_the_gateway_without_showing_its_values(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(DEFINITIONS.replace("{options}", ""))
    s.run_to("0/1")
    run(source, "INSERT INTO t VALUES (1, 'UTC')", "INSERT INTO t VALUES (2, 'hidden')")

    ended = s.cli("run", "--endpos", current_lsn(source))

    assert ended.code == 1
    assert "time zone ... not recognized (SQLSTATE 22023)" in ended.err
    assert "row at LSN" in ended.err
    assert "hidden" not in ended.err and "Traceback" not in ended.err


def test_nothing_is_lost_when_the_evaluating_session_is_ended_again_and_again(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE t WHERE (a > 0 AND b ~ '\\d');"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        limits={"max_batch_ms": 20},
    )
    process = s.project.start()
    process.wait_until_copied()
    kill = (
        "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
        " WHERE application_name = 'pgsluice filters' AND datname = current_database()"
    )
    for round_ in range(3):
        first = round_ * 1000 + 1
        for i in range(first, first + 40):
            run(
                source,
                f"INSERT INTO t SELECT {i} + 100 * j, md5(j::text) FROM generate_series(0, 9) j",
            )
            if i % 20 == 0 and round_ < 2:
                wait_until(lambda: value_of(source, kill) > 0, 60, "a session to end")
    process.terminate()
    s.run_to(current_lsn(source))

    assert "trying again" in process.log()
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a > 0 AND b ~ '\\d'")
    assert_exactly_once(s, ["t"])


def test_with_the_server_off_such_a_filter_is_refused_by_position(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(DEFINITIONS.replace("{options}", ""), filters={"server": "off"})

    ended = s.cli("check")

    assert ended.code == 1
    assert "row filter of publication p for public.t, column" in ended.out
    assert '[filters] server = "on"' in ended.out


@pytest.mark.parametrize("postgres_major", [17], indirect=True)  # built with ICU
def test_icus_collations_are_those_of_native_subscriptions(
    database: Database, make_database: DatabaseFactory, kafka: str, registry: str, tmp_path: Path
) -> None:
    words = "('Äpple'), ('ångström'), ('Öl'), ('ol'), ('zebra'), ('Zebra'), ('aa'), ('ä'), (NULL)"
    columns = 'id int PRIMARY KEY, name text COLLATE "sv-x-icu", plain text'
    with database.connect() as connection:
        run(
            connection,
            f"CREATE TABLE words ({columns})",
            "ALTER TABLE words REPLICA IDENTITY FULL",
            f"INSERT INTO words SELECT row_number() OVER (), w, w FROM (VALUES {words}) AS v(w)",
        )
    NativeScene(database, make_database, kafka, registry, tmp_path).compare(
        "CREATE PUBLICATION behind FOR TABLE words WHERE (name > 'z');"
        "CREATE PUBLICATION cased FOR TABLE words"
        ' WHERE (upper(plain COLLATE "tr-x-icu") > plain OR plain COLLATE "de-x-icu" < \'b\');',
        {
            "behind": Subscriber(("behind",), {"words": columns}),
            "cased": Subscriber(("cased",), {"words": columns}),
        },
        [
            lambda connection: run(
                connection,
                f"INSERT INTO words SELECT 100 + row_number() OVER (), w, w FROM (VALUES {words})"
                " AS v(w)",
                "UPDATE words SET name = 'ö', plain = 'i' WHERE id % 3 = 0",
                "DELETE FROM words WHERE id % 7 = 0",
            )
        ],
    )
    # A collation of one's own, as one that is not deterministic has to be, PostgreSQL refuses.
    with database.connect() as connection:
        run(
            connection,
            "CREATE COLLATION nocase"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "CREATE TABLE loose (t text COLLATE nocase PRIMARY KEY)",
        )
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="publication WHERE"):
            run(connection, "CREATE PUBLICATION p FOR TABLE loose WHERE (t = 'X')")
