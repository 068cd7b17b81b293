"""Looks at the gateway's own publications: no lock is waited for, and no error comes out raw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from gateway.core.errors import TransientError
from gateway.core.watermark import CopyState
from gateway.definitions.changes import copy_states
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Plan
from gateway.definitions.sql.parser import parse_definitions
from gateway.rowfilter.server.pushdown import push_down
from gateway.runtime.planning.table_checks import awaits_owner
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.lost_members import MembersWatch
from gateway.source.provisioning.own_publications import (
    check_publications,
    ensure_publications,
    extend_publications,
)
from tests.support.backends.servers import Connection, Database

pytestmark = pytest.mark.postgres

DEFINITIONS = parse_definitions(
    "CREATE PUBLICATION p FOR TABLE t WHERE (a > 1), u;"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
)


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE u (a int PRIMARY KEY)"
        )
        yield connection


@pytest.fixture
def plan(connection: Connection) -> Plan:
    """A plan whose publications exist, with a filter."""
    catalog = read_catalog(connection, DEFINITIONS)
    plan = make_plan(DEFINITIONS, catalog, prefix="gw", missing_identity="refuse")
    plan = push_down(plan, DEFINITIONS)
    ensure_publications(connection, plan, prefix="gw")
    return plan


def test_a_server_that_goes_away_meanwhile_is_no_error_for_a_person(
    database: Database, connection: Connection, plan: Plan
) -> None:
    with database.connect() as other:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", [other.info.backend_pid])
        with pytest.raises(TransientError, match="gateway's publications"):
            awaits_owner(other, plan, "gw")


def test_a_locked_table_does_not_keep_a_start_from_asking_for_its_owner(
    database: Database, connection: Connection, plan: Plan
) -> None:
    with database.connect() as holder, holder.transaction():
        holder.execute("LOCK TABLE t")
        connection.execute("SET lock_timeout = '10ms'")
        assert not awaits_owner(connection, plan, "gw")


@pytest.mark.parametrize("postgres_major", [18], indirect=True)
def test_a_look_waits_for_a_locked_table_only_if_there_is_something_to_compare(
    database: Database, connection: Connection, plan: Plan
) -> None:
    watch = MembersWatch("gw")
    assert watch.look(connection, plan, (), again=False) == {}
    with database.connect() as holder, holder.transaction():
        holder.execute("LOCK TABLE t")
        assert watch.look(connection, plan, (), again=False) == {}
        assert not watch.has_changed
        connection.execute("ALTER PUBLICATION gw_leaf DROP TABLE u")
        for _ in range(2):
            with pytest.raises(TransientError, match="lock"):
                watch.look(connection, plan, (), again=False)
    watch.look(connection, plan, (), again=False)
    assert watch.has_changed


MIXED_TREE = """
CREATE TABLE tree (a int PRIMARY KEY, b int) PARTITION BY RANGE (a);
CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (5);
CREATE TABLE high PARTITION OF tree FOR VALUES FROM (5) TO (9);
ALTER TABLE high REPLICA IDENTITY NOTHING;
"""
UNDER_ROOT = parse_definitions(
    "CREATE PUBLICATION p FOR TABLE tree WITH (publish_via_partition_root = true);"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
)


def ready(plan: Plan) -> list[CopyState]:
    """The states of all tables once they have been copied."""
    return [replace(state, state="ready") for state in copy_states(plan, (), reconcile=False)]


def found(connection: Connection, plan: Plan, statements: Sequence[str]) -> set[str]:
    """Names of the tables that a watch finds after statements, which leaves nothing else to find.

    A start has to find the same, unless all is as it was before.
    """
    watch = MembersWatch("gw")
    assert watch.look(connection, plan, ready(plan), again=False) == {}
    for statement in statements:
        connection.execute(statement.encode())
    found = watch.look(connection, plan, ready(plan), again=False)
    at_start = MembersWatch("gw").look_at_start(connection, plan, ready(plan))
    assert at_start == (found if check_publications(connection, plan, prefix="gw") else {})
    assert watch.look(connection, plan, ready(plan), again=False) == {}
    return {str(plan.tables[oid]) for _, oid in found}


@pytest.mark.parametrize(
    ("statements", "is_lost"),
    [
        (["ALTER PUBLICATION gw_leaf DROP TABLE low"], True),
        (["ALTER PUBLICATION gw_leaf SET (publish = 'insert')"], True),
        (
            [
                "ALTER PUBLICATION gw_leaf DROP TABLE low",
                "ALTER PUBLICATION gw_leaf ADD TABLE low",
            ],
            True,
        ),
        (["ALTER PUBLICATION gw_root_insert DROP TABLE tree"], True),
        (["ALTER PUBLICATION gw_root_insert SET (publish = 'insert')"], True),
        (["ALTER PUBLICATION gw_root_insert SET (publish = 'insert, update, truncate')"], False),
    ],
)
def test_a_partition_beside_its_tree_is_missed_as_a_table_is(
    connection: Connection, statements: list[str], is_lost: bool
) -> None:
    connection.execute(MIXED_TREE)
    catalog = read_catalog(connection, UNDER_ROOT)
    plan = make_plan(UNDER_ROOT, catalog, prefix="gw", missing_identity="insert_only")
    ensure_publications(connection, plan, prefix="gw")
    assert found(connection, plan, statements) == ({"public.tree"} if is_lost else set())


@pytest.mark.parametrize(
    ("published", "option", "is_lost"),
    [
        ("g WITH (publish_generated_columns = stored)", "none", True),
        ("g (a, twice)", "none", True),
        ("g WHERE (twice > 2) WITH (publish = 'insert')", "none", True),
        ("g", "stored", False),
    ],
)
@pytest.mark.parametrize("postgres_major", [18], indirect=True)
def test_generated_columns_that_are_not_sent_any_more_are_missed(
    connection: Connection, published: str, option: str, is_lost: bool
) -> None:
    connection.execute(
        "CREATE TABLE g (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED);"
        "CREATE TABLE h (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    definitions = parse_definitions(
        f"CREATE PUBLICATION p FOR TABLE {published}; CREATE PUBLICATION q FOR TABLE h;"
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p, q;"
    )
    catalog = read_catalog(connection, definitions)
    plan = make_plan(definitions, catalog, prefix="gw", missing_identity="refuse")
    ensure_publications(connection, plan, prefix="gw")
    statements = [
        f"ALTER PUBLICATION {publication.name} SET (publish_generated_columns = {option})"
        for publication in plan.server_publications
    ]
    assert found(connection, plan, statements) == ({"public.g"} if is_lost else set())


@pytest.mark.parametrize("postgres_major", [18], indirect=True)
def test_generated_columns_that_were_not_sent_before_are_not_missed(
    connection: Connection,
) -> None:
    connection.execute(
        "CREATE TABLE g (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    before, after = (
        make_plan(text, read_catalog(connection, text), prefix="gw", missing_identity="refuse")
        for text in (
            parse_definitions(
                f"CREATE PUBLICATION p FOR TABLE g{columns};"
                "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
            )
            for columns in ("", " (a, twice)")
        )
    )
    ensure_publications(connection, before, prefix="gw")
    assert MembersWatch("gw").look_at_start(connection, after, ready(before)) == {}
    assert MembersWatch("gw").look(connection, after, ready(before), again=True) == {}


def test_what_the_gateway_itself_takes_away_for_a_coming_plan_is_not_missed(
    connection: Connection,
) -> None:
    def read() -> Plan:
        catalog = read_catalog(connection, UNDER_ROOT)
        return make_plan(UNDER_ROOT, catalog, prefix="gw", missing_identity="insert_only")

    connection.execute(MIXED_TREE)
    connection.execute("ALTER TABLE high REPLICA IDENTITY DEFAULT")
    plan = read()
    ensure_publications(connection, plan, prefix="gw")
    connection.execute("ALTER TABLE high REPLICA IDENTITY NOTHING")
    coming, states = read(), ready(plan)
    assert extend_publications(connection, coming, prefix="gw")

    def look(coming: Plan | None) -> set[str]:
        faults = MembersWatch("gw").look(connection, plan, states, again=True, coming=coming)
        return {str(plan.tables[oid]) for _, oid in faults}

    assert look(None) == {"public.tree"}
    assert look(coming) == set()
    connection.execute("ALTER PUBLICATION gw_leaf DROP TABLE low")
    assert look(coming) == {"public.tree"}


def test_a_plan_that_is_not_provided_for_yet_misses_nothing(connection: Connection) -> None:
    texts = (
        f"CREATE PUBLICATION p FOR TABLE {tables};"
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (copy_data = false);"
        for tables in ("t", "t, u")
    )
    plan, coming = (
        make_plan(text, read_catalog(connection, text), prefix="gw", missing_identity="refuse")
        for text in map(parse_definitions, texts)
    )
    ensure_publications(connection, plan, prefix="gw")
    assert MembersWatch("gw").look(connection, plan, (), again=True, coming=coming) == {}
