"""Generated columns: what PostgreSQL 18 publishes of them, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from gateway.core.errors import DefinitionError, FilterError
from gateway.definitions.combine import find_problems, make_plan
from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.own_publications import ensure_publications, extend_publications
from tests.support.backends.servers import Connection, Database, DatabaseFactory
from tests.support.gateway.native_scene import NativeScene, Subscriber

pytestmark = pytest.mark.postgres
on_18 = pytest.mark.parametrize("postgres_major", [18], indirect=True)
before_18 = pytest.mark.parametrize("postgres_major", [16], indirect=True)

TABLES = """
    CREATE TABLE plain (a int PRIMARY KEY, b text,
        twice int GENERATED ALWAYS AS (a * 2) STORED, c int,
        shown text GENERATED ALWAYS AS (b || '!') VIRTUAL);
    CREATE TABLE whole (a int, s text GENERATED ALWAYS AS ('n' || a::text) STORED, b int);
    ALTER TABLE whole REPLICA IDENTITY FULL;
    CREATE TABLE indexed (a int NOT NULL,
        k int GENERATED ALWAYS AS (a % 7) STORED NOT NULL, b text);
    CREATE UNIQUE INDEX indexed_ak ON indexed (k, a);
    ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_ak;
    CREATE TABLE tree (a int PRIMARY KEY, b int, g int GENERATED ALWAYS AS (a + 1) STORED)
        PARTITION BY RANGE (a);
    CREATE TABLE tree_low (g int GENERATED ALWAYS AS (a * 100) STORED, b int, a int NOT NULL);
    ALTER TABLE tree ATTACH PARTITION tree_low FOR VALUES FROM (0) TO (50);
    CREATE TABLE tree_high PARTITION OF tree FOR VALUES FROM (50) TO (200);
    INSERT INTO plain (a, b, c) SELECT n, 'copied', n FROM generate_series(1, 20) AS n;
    INSERT INTO whole (a, b) SELECT n, n FROM generate_series(1, 20) AS n;
    INSERT INTO indexed (a, b) SELECT n, 'copied' FROM generate_series(1, 20) AS n;
    INSERT INTO tree (a, b) SELECT n, n FROM generate_series(1, 100, 5) AS n;"""

PUBLICATIONS = """
    CREATE PUBLICATION stored FOR TABLE plain, whole WHERE (s <> 'n5'), indexed WHERE (k > 2), tree
        WITH (publish_generated_columns = stored, publish_via_partition_root = true);
    CREATE PUBLICATION same FOR TABLE plain WHERE (a < 15)
        WITH (publish_generated_columns = stored);
    CREATE PUBLICATION listed FOR TABLE plain (a, twice), tree (g, a)
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION list_counts FOR TABLE plain (b, a)
        WITH (publish_generated_columns = stored);
    CREATE PUBLICATION unpublished FOR TABLE plain, tree;
    CREATE PUBLICATION leaves FOR TABLE tree_low WITH (publish_generated_columns = stored);
    CREATE PUBLICATION by_value FOR TABLE plain WHERE (twice > 20) WITH (publish = 'insert');
    """

PLAIN = "a int PRIMARY KEY, b text, twice int, c int"
TREE = "a int PRIMARY KEY, b int, g int"
SUBSCRIBERS = {
    "all_of_it": Subscriber(
        ("stored", "same"),
        {
            "plain": f"{PLAIN}, late int, later int",
            "whole": "a int, s text, b int",
            "indexed": "a int, k int, b text, PRIMARY KEY (k, a)",
            "tree": TREE,
        },
        "ALTER TABLE whole REPLICA IDENTITY FULL;",
    ),
    "by_list": Subscriber(
        ("listed",), {"plain": "a int PRIMARY KEY, twice int", "tree": "a int PRIMARY KEY, g int"}
    ),
    "list_over_option": Subscriber(("list_counts",), {"plain": "a int PRIMARY KEY, b text"}),
    "none": Subscriber(
        ("unpublished",),
        {
            "plain": "a int PRIMARY KEY, b text, c int, late int",
            "tree_low": "b int, a int PRIMARY KEY",
            "tree_high": "a int PRIMARY KEY, b int",
        },
    ),
    "of_a_leaf": Subscriber(("leaves",), {"tree_low": "g int, b int, a int PRIMARY KEY"}),
    "filtered": Subscriber(("by_value",), {"plain": "a int PRIMARY KEY, b text, c int, late int"}),
}

CHANGES = """
    INSERT INTO plain (a, b, c) SELECT n, 'new', n FROM generate_series(21, 40) AS n;
    UPDATE plain SET a = a + 100 WHERE a % 4 = 0;
    UPDATE plain SET c = c + 1 WHERE a % 3 = 0;
    DELETE FROM plain WHERE a % 10 = 7;
    INSERT INTO whole (a, b) VALUES (5, 1), (NULL, 2), (30, 3);
    UPDATE whole SET a = a + 1 WHERE a < 10;
    DELETE FROM whole WHERE a IN (12, 13);
    UPDATE indexed SET a = a + 1000 WHERE a % 2 = 0;
    UPDATE indexed SET b = 'changed' WHERE a % 3 = 0;
    DELETE FROM indexed WHERE a = 9;
    UPDATE tree SET a = a + 150 WHERE a < 50 AND a % 3 = 0;
    UPDATE tree SET b = -b WHERE a % 2 = 0;
    DELETE FROM tree WHERE a = 16;"""

MORE_COLUMNS = """
    UPDATE plain SET c = 0 WHERE a < 5;
    ALTER TABLE plain ADD late int;
    ALTER TABLE plain ADD later int GENERATED ALWAYS AS (c + 1) STORED;
    INSERT INTO plain (a, b, c, late) VALUES (500, 'x', 1, 2), (501, 'y', NULL, NULL);
    UPDATE plain SET late = 3 WHERE a < 8;"""


def run(connection: Connection, script: str) -> None:
    """Run a script, each statement in a transaction of its own."""
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement.encode())


@pytest.mark.kafka
@on_18
def test_stored_generated_columns_arrive_as_natively(
    database: Database, make_database: DatabaseFactory, kafka: str, registry: str, tmp_path: Path
) -> None:
    with database.connect() as connection:
        run(connection, TABLES)
    scene = NativeScene(database, make_database, kafka, registry, tmp_path)

    scene.compare(
        PUBLICATIONS,
        SUBSCRIBERS,
        [
            lambda connection: run(connection, CHANGES),
            lambda connection: run(connection, MORE_COLUMNS),
        ],
    )


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        run(connection, TABLES)
        connection.execute(
            "CREATE TABLE only_virtual (a int PRIMARY KEY, v int GENERATED ALWAYS AS (a) VIRTUAL)"
        )
        connection.execute("CREATE TABLE nothing_generated (a int PRIMARY KEY)")
        connection.execute("INSERT INTO only_virtual VALUES (1)")
        connection.execute("INSERT INTO nothing_generated VALUES (1)")
        yield connection


COMBINATIONS = {
    "stored and none": "TABLE plain WITH (publish_generated_columns = stored)|TABLE plain",
    "stored twice": "TABLE plain WITH (publish_generated_columns = stored)|"
    "TABLE plain WHERE (a > 1) WITH (publish_generated_columns = stored)",
    "stored and a list of all that is published": "TABLE plain WITH "
    "(publish_generated_columns = stored)|TABLE plain (b, twice, c, a)",
    "stored and a list without the generated column": "TABLE plain WITH "
    "(publish_generated_columns = stored)|TABLE plain (a, b, c)",
    "none and a list without the generated column": "TABLE plain|TABLE plain (a, b, c)",
    "none and a list with the generated column": "TABLE plain|TABLE plain (a, b, c, twice)",
    "two lists under different options": "TABLE plain (a, twice) WITH "
    "(publish_generated_columns = stored)|TABLE plain (twice, a)",
    "a list, stored and none": "TABLE plain (a, b, c)|TABLE plain|"
    "TABLE plain WITH (publish_generated_columns = stored)",
    "stored and none, only a virtual column": "TABLE only_virtual WITH "
    "(publish_generated_columns = stored)|TABLE only_virtual",
    "stored and none, nothing generated": "TABLE nothing_generated WITH "
    "(publish_generated_columns = stored)|TABLE nothing_generated",
    "all tables stored, one without": "TABLES IN SCHEMA public WITH "
    "(publish_generated_columns = stored)|TABLE plain",
    "at different levels of a tree": "TABLE tree WITH (publish_generated_columns = stored, "
    "publish_via_partition_root = true)|TABLE tree_low",
    "at one level of a tree": "TABLE tree WITH (publish_generated_columns = stored)|TABLE tree_low",
}


@on_18
@pytest.mark.parametrize("publications", COMBINATIONS.values(), ids=list(COMBINATIONS))
def test_publications_that_disagree_are_refused_as_natively(
    connection: Connection, publications: str
) -> None:
    texts = [
        f"CREATE PUBLICATION p{n} FOR {text};" for n, text in enumerate(publications.split("|"))
    ]
    names = ", ".join(f"p{n}" for n in range(len(texts)))
    definitions = parse_definitions(
        "".join(texts) + f"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION {names}"
    )
    catalog = read_catalog(connection, definitions)
    ours = {
        problem.message.split("\nline ")[0]
        for problem in find_problems(definitions, catalog, missing_identity="insert_only")
    }
    for text in texts:
        connection.execute(text.encode())

    natively = _refusal_of_the_subscription(connection, names) or _refusal_of_the_stream(
        connection, names
    )

    assert ours == ({natively} if natively else set())


def _refusal_of_the_subscription(connection: Connection, names: str) -> str | None:
    """What CREATE SUBSCRIPTION says of the publications, which it asks for their tables."""
    with _slot(connection) as slot:
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(
                    sql.SQL(
                        "CREATE SUBSCRIPTION probe CONNECTION {} PUBLICATION {} WITH"
                        " (create_slot = false, slot_name = {})"
                    ).format(sql.Literal(connection.info.dsn), sql.SQL(names), sql.Identifier(slot))
                )
        except psycopg.errors.Error as error:
            return error.diag.message_primary
    return None


def _refusal_of_the_stream(connection: Connection, names: str) -> str | None:
    """What pgoutput says when it meets changes of the tables."""
    with _slot(connection) as slot:
        run(
            connection,
            "UPDATE plain SET c = 1; UPDATE only_virtual SET a = 1;"
            "UPDATE nothing_generated SET a = 1; UPDATE tree SET b = 1",
        )
        try:
            connection.execute(
                "SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
                " 'proto_version', '1', 'publication_names', %s)",
                (slot, names.replace(" ", "")),
            )
        except psycopg.errors.FeatureNotSupported as error:
            return error.diag.message_primary
    return None


@contextmanager
def _slot(connection: Connection) -> Iterator[str]:
    name = f"probe_{connection.info.dbname}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    try:
        yield name
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


@on_18
def test_while_one_plan_takes_over_from_another_the_gateways_publications_agree(
    connection: Connection,
) -> None:
    before, after = (
        parse_definitions(
            f"CREATE PUBLICATION p FOR TABLE {text};"
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p"
        )
        for text in ("plain", "plain (a, twice) WITH (publish = 'insert')")
    )
    plans = [
        make_plan(text, read_catalog(connection, text), prefix="gw", missing_identity="refuse")
        for text in (before, after)
    ]
    ensure_publications(connection, plans[0], prefix="gw")

    extend_publications(connection, plans[1], prefix="gw")

    rows = connection.execute("SELECT pubname FROM pg_publication WHERE pubgencols = 's'")
    assert {"gw_leaf", "gw_leaf_insert"} <= {name for (name,) in rows}
    names = "gw_leaf, gw_leaf_insert, gw_root, gw_root_insert"
    assert _refusal_of_the_stream(connection, names) is None
    ensure_publications(connection, plans[1], prefix="gw")
    assert _refusal_of_the_stream(connection, names.replace("gw_leaf,", "")) is None


@before_18
def test_before_18_the_option_is_unknown_as_it_is_to_the_server(database: Database) -> None:
    text = "CREATE PUBLICATION p FOR TABLE t WITH (publish_generated_columns = stored);"
    definitions = parse_definitions(f"{text} CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p")
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        with pytest.raises(psycopg.Error) as natively:
            connection.execute(text)

        with pytest.raises(DefinitionError) as ours:
            read_catalog(connection, definitions)

    assert ours.value.message.split("\nline ")[0] == natively.value.diag.message_primary


@pytest.mark.parametrize("postgres_major", [16, 17, 18], indirect=True)
@pytest.mark.parametrize("named", [False, True], ids=["defined here", "of the database"])
def test_a_filter_on_a_generated_column_is_refused_where_the_server_does_not_send_it(
    database: Database, postgres_major: int, named: bool
) -> None:
    text = "CREATE PUBLICATION p FOR TABLE t WHERE (g > 5) WITH (publish = 'insert');"
    subscription = "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p"
    definitions = parse_definitions(subscription if named else text + subscription)
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, g int GENERATED ALWAYS AS (a * 2) STORED)"
        )
        connection.execute(text)
        if postgres_major >= 18:
            assert len(read_catalog(connection, definitions).tables) == 1
            return
        with pytest.raises(FilterError, match="reads a generated column") as r:
            read_catalog(connection, definitions)

    assert r.value.position == (None if named else text.index("g > 5"))


@on_18
def test_a_publication_of_the_database_says_whether_it_publishes_generated_columns(
    connection: Connection,
) -> None:
    connection.execute(
        "CREATE PUBLICATION p FOR TABLE plain WITH (publish_generated_columns = stored);"
        "CREATE PUBLICATION q FOR TABLE plain"
    )
    definitions = parse_definitions(
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
        "CREATE SUBSCRIPTION t CONNECTION '' PUBLICATION q"
    )

    catalog = read_catalog(connection, definitions)

    plan = make_plan(definitions, catalog, prefix="gw", missing_identity="refuse")
    assert {copy.subscription: copy.columns for copy in plan.copies} == {
        "s": ("a", "b", "twice", "c"),
        "t": ("a", "b", "c"),
    }
