"""A table that somebody has locked keeps the gateway from nothing that the catalog says."""

from __future__ import annotations

import pytest

from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog import catalog, filter_text
from gateway.source.catalog.catalog import read_catalog
from gateway.source.catalog.locked_tables import TableLockedError
from gateway.source.catalog.shape_queries import read_shapes
from gateway.source.catalog.tables import estimated_rows
from gateway.source.catalog.watch import whole_digest
from tests.support.backends.servers import Database
from tests.support.gateway.scene import value_of

pytestmark = pytest.mark.postgres


def test_a_locked_tree_is_seen_with_its_leaves_without_waiting(database: Database) -> None:
    definitions = parse_definitions("CREATE PUBLICATION p FOR ALL TABLES")
    with database.connect() as holder, database.connect() as connection:
        holder.execute(
            "CREATE TABLE r (a int PRIMARY KEY) PARTITION BY RANGE (a);"
            "CREATE TABLE m PARTITION OF r FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (a);"
            "CREATE TABLE l PARTITION OF m FOR VALUES FROM (0) TO (9);"
            "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO l VALUES (1); ANALYZE"
        )
        r, leaf, t = (value_of(holder, "SELECT %s::regclass::oid", name) for name in "rlt")
        connection.execute("SET lock_timeout = '10ms'")
        with holder.transaction():
            holder.execute("LOCK TABLE r IN ACCESS EXCLUSIVE MODE")
            found = read_catalog(connection, definitions)
            estimates = estimated_rows(connection)
            read_shapes(connection, [r, t])
            whole_digest(connection, definitions)

    assert found.tables[r].leaves == (leaf,)
    assert set(found.tables) >= {r, leaf, t}
    assert estimates["public", "r"] == 1


def test_a_filter_on_a_locked_table_spoils_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '10ms'")
    filters = (
        "CREATE PUBLICATION p FOR TABLE t WHERE (a > 1), u WHERE (a > 1);"
        "CREATE PUBLICATION q FOR TABLE u WHERE (EXISTS (SELECT FROM i WHERE i.a = u.a AND a > 2));"
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p, q, d"
    )
    with database.connect() as holder, database.connect() as connection:
        holder.execute(
            "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY);"
            "CREATE TABLE i (a int PRIMARY KEY);"
            "CREATE PUBLICATION d FOR TABLE t WHERE (a > 3), u WHERE (a > 3)"
        )
        t, u = (value_of(holder, "SELECT %s::regclass::oid", name) for name in "tu")
        definitions, pid = parse_definitions(filters), holder.info.backend_pid
        with holder.transaction():
            holder.execute("LOCK TABLE t, i")
            with pytest.raises(TableLockedError, match=r"filter on public\.t cannot be read"):
                read_catalog(connection, definitions)
            known = {("public", name): oid for name, oid in (("t", t), ("u", u))}
            found = read_catalog(connection, definitions, known)
        before = read_catalog(connection, definitions)
        # Filters that were read before are not waited for: neither the file's nor the database's.
        monkeypatch.setattr(catalog, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = 0")
        connection.execute("SET statement_timeout = '60s'")
        with holder.transaction():
            holder.execute("LOCK TABLE t, i")
            after = read_catalog(connection, definitions)

    # A server of 16 prints the filters of its publications without a lock.
    assert {("p", t), ("q", u)} <= found.broken.keys() <= {("p", t), ("q", u), ("d", t)}
    assert f"a lock on it is held by pid {pid}" in str(found.broken["q", u])
    assert "filter on public.i" in found.broken["q", u].reason
    assert [r.where for r in found.publications["p"].relations] == ["(a > 1)"]
    assert u in {relation.table_oid for relation in found.publications["d"].relations}
    assert not before.broken
    assert after == before


def test_a_filter_is_read_beside_vacuum_and_an_index_that_is_made(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = ("a > 1", "a IN (1, 2) AND NOT b", "b", "c LIKE 'x%' OR lower(c) = 'y' AND a <> 3")
    publications = (
        f"CREATE PUBLICATION p{number} FOR TABLE t WHERE ({text});"
        for number, text in enumerate(filters)
    )
    definitions = parse_definitions("".join(publications))
    monkeypatch.setattr(catalog, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '10ms'")
    with database.connect() as holder, database.connect() as connection:
        holder.execute("CREATE TABLE t (a int PRIMARY KEY, b bool, c text)")
        expected = read_catalog(connection, definitions)
        filter_text._remembered.clear()  # as in a process that has just begun
        with holder.transaction():
            holder.execute("LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
            found = read_catalog(connection, definitions)

    assert found == expected
