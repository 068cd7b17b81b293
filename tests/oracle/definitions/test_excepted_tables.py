"""FOR ALL TABLES EXCEPT, on PostgreSQL 19 where there is one, and on a catalog like its own."""

from __future__ import annotations

import json

import pytest

from devkit.embedded.postgres import MAJORS
from gateway.core.lsn import ZERO_LSN
from gateway.definitions.ddl.alterations import read_alteration
from gateway.definitions.ddl.effects import DdlState, apply_ddl
from gateway.source.catalog.database_publications import read_listed
from gateway.source.provisioning.event_trigger import FUNCTIONS
from tests.support.backends.servers import Database
from tests.support.gateway.scene import value_of

pytestmark = pytest.mark.postgres

TABLES = "CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY)"


def test_rows_of_the_catalog_that_are_marked_are_no_tables_to_publish(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(
            "CREATE PUBLICATION p FOR TABLE a (id) WHERE (id > 1), b;"
            # As the catalog of 19 has it, with one column more.
            "CREATE TABLE relations AS SELECT *, prrelid = 'b'::regclass AS prexcept"
            " FROM pg_publication_rel"
        )
        publication = value_of(connection, "SELECT oid FROM pg_publication")

        plain = read_listed(connection, publication)
        marked = read_listed(connection, publication, "public.relations")

        a, b = (value_of(connection, "SELECT %s::regclass::oid", name) for name in "ab")
    assert {one.table_oid for one in plain.relations} == {a, b}
    assert plain.excepted == frozenset()
    (left,) = marked.relations
    assert (left.table_oid, left.where, left.columns) == (a, "(id > 1)", ("id",))
    assert marked.excepted == {b}


def test_a_ddl_message_says_what_is_excepted_and_does_not_list_it(database: Database) -> None:
    """The event triggers' own function, on a catalog as 19 has it."""
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(
            "CREATE PUBLICATION p FOR TABLE a, b; CREATE PUBLICATION q FOR ALL TABLES;"
            "CREATE TABLE relations AS SELECT *, prrelid = 'b'::regclass AS prexcept"
            " FROM pg_publication_rel; ALTER TABLE relations REPLICA IDENTITY FULL;"
            "CREATE SCHEMA pgsluice; CREATE TABLE said (content text);"
            "ALTER TABLE said REPLICA IDENTITY FULL;"
            "CREATE FUNCTION pgsluice.emit(text, jsonb) RETURNS void LANGUAGE sql"
            " AS 'INSERT INTO public.said VALUES ($2::text)'"
        )
        body = FUNCTIONS["tell"].replace("pg_catalog.pg_publication_rel", "public.relations")
        connection.execute(
            "CREATE FUNCTION pgsluice.tell(altered jsonb, as_of pg_lsn, unsaid boolean)"
            f" RETURNS void LANGUAGE sql AS $${body}$$".encode()
        )
        ddl_state, found = DdlState(), []
        for names in ([], ["p"]):
            altered = json.dumps({"publications": names, "tables": [], "trees": []})
            connection.execute("SELECT pgsluice.tell(%s::jsonb, '0/1', false)", (altered,))
            content = value_of(connection, "SELECT content FROM said").encode()
            ddl_state = apply_ddl(ddl_state, read_alteration(content, ("p", "q")), ZERO_LSN)
            found.append(ddl_state)
            connection.execute("UPDATE relations SET prexcept = false; DELETE FROM said")
        first, second = found
        a, b = (value_of(connection, "SELECT %s::regclass::oid", name) for name in "ab")

    assert first.excepted == {"p": {b}, "q": frozenset()}
    assert [r.table_oid for r in first.publications["p"].relations] == [a]
    assert second.excepted == {"p": frozenset(), "q": frozenset()}
    assert {r.table_oid for r in second.publications["p"].relations} == {a, b}


@pytest.mark.skipif(max(MAJORS) < 19, reason="there is no embedded PostgreSQL 19 yet")
@pytest.mark.parametrize("postgres_major", [19], indirect=True)
def test_what_postgresql_19_excepts_is_read_from_its_catalog(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE b)")
        publication = value_of(connection, "SELECT oid FROM pg_publication")

        found = read_listed(connection, publication)

        b = value_of(connection, "SELECT 'b'::regclass::oid")
    assert not found.relations
    assert found.excepted == {b}
