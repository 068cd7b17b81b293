"""Warnings of `check` about a role that can do more than it needs, and about code on its way."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from gateway.source.provisioning.excess_privileges import excess_rights, planned_code
from gateway.source.session.connection import connect
from tests.support.backends.servers import Database
from tests.support.gateway.scene import value_of

pytestmark = pytest.mark.postgres

TABLES = """
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE other (id int PRIMARY KEY);
GRANT USAGE ON SCHEMA public TO {reader}, {owner};
GRANT SELECT ON t TO {reader};
CREATE FUNCTION theirs(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE FUNCTION ours(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
ALTER FUNCTION theirs(int) OWNER TO {owner};
CREATE INDEX harmless ON t (ours(id));
CREATE INDEX harmful ON t ((id + theirs(1)));
CREATE STATISTICS known ON (id * theirs(2)) FROM t;
ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0 - theirs(3));
"""
MORE = """
GRANT SELECT, INSERT ON other TO {reader};
GRANT pg_read_all_data TO {reader};
ALTER ROLE {reader} CREATEDB;
"""


def test_what_a_role_does_not_need_and_what_could_run_with_its_rights_is_named(
    database: Database,
) -> None:
    reader, owner = f"reader_{database.name}", f"owner_{database.name}"
    roles = {"reader": sql.Identifier(reader), "owner": sql.Identifier(owner)}
    with database.connect() as connection:
        made = sql.SQL("CREATE ROLE {reader} LOGIN PASSWORD 'x' REPLICATION; CREATE ROLE {owner}")
        connection.execute(made.format(**roles))
        try:
            connection.execute(sql.SQL(TABLES).format(**roles))
            t = value_of(connection, "SELECT 't'::regclass::oid")
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=reader, password="x")

            with connect(database.dsn) as superuser, connect(dsn) as role:
                assert excess_rights(superuser, [t]) == ["it is a superuser"]
                assert excess_rights(role, [t]) == []
                assert planned_code(role, [t]) == [
                    (t, "constraint positive", "public.theirs(integer)", owner),
                    (t, "index harmful", "public.theirs(integer)", owner),
                    (t, "statistics known", "public.theirs(integer)", owner),
                ]
            connection.execute(sql.SQL(MORE).format(**roles))
            with connect(dsn) as role:
                assert excess_rights(role, [t]) == [
                    "it may make databases",
                    "it is a member of pg_read_all_data",
                    "it may write to 1 table",
                    "it may read 1 table not published",
                ]
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {reader}, {owner} CASCADE").format(**roles))
            connection.execute(sql.SQL("DROP ROLE {reader}, {owner}").format(**roles))
