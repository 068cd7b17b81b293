"""Looks at the gateway's own publications: no lock is waited for, and no error comes out raw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.core.errors import TransientError
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Plan
from gateway.definitions.sql.parser import parse_definitions
from gateway.rowfilter.server.pushdown import push_down
from gateway.runtime.planning.table_checks import awaits_owner
from gateway.source.catalog.catalog import read_catalog
from gateway.source.provisioning.lost_members import MembersWatch
from gateway.source.provisioning.own_publications import ensure_publications
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
