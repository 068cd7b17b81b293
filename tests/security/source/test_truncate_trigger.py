"""The trigger before a TRUNCATE runs PostgreSQL's own code, with the rights of who truncates."""

from __future__ import annotations

import psycopg
import pytest

from gateway.source.provisioning.truncate_trigger import INSTALL, trigger_sql
from tests.support.backends.servers import Database
from tests.support.workloads.hostile import hostile, make_trap, plain_connection, sprung

pytestmark = pytest.mark.postgres

TABLES = """
CREATE TABLE t (id int PRIMARY KEY);
CREATE TABLE u (id int REFERENCES t DEFERRABLE INITIALLY DEFERRED);
INSERT INTO t VALUES (1); INSERT INTO u VALUES (1);
"""


def test_nothing_that_shadows_a_name_of_postgresql_is_used_by_the_trigger(
    database: Database,
) -> None:
    with plain_connection(database) as connection:
        connection.execute(TABLES.encode())
        connection.execute((INSTALL + trigger_sql("public.t")).encode())
        make_trap(connection)
        with hostile(database):
            with psycopg.connect(
                database.dsn, autocommit=True, application_name="pgsluice test"
            ) as truncating:
                with pytest.raises(psycopg.Error, match="code of somebody else"):
                    truncating.execute("SELECT to_jsonb(1)")
                assert sprung(connection)
                truncating.execute("CREATE TEMP TABLE pg_class AS SELECT 1 AS oid")
                truncating.execute("TRUNCATE public.t CASCADE")
            assert sprung(connection) == []
        rights = connection.execute(
            "SELECT prosecdef, proconfig FROM pg_proc WHERE proname = 'delete_rows'"
        ).fetchall()
        assert rights == [(False, None)]
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
