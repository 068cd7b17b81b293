"""A table that somebody has locked keeps the gateway from nothing that the catalog says."""

from __future__ import annotations

import pytest

from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog.catalog import read_catalog
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
            catalog = read_catalog(connection, definitions)
            estimates = estimated_rows(connection)
            read_shapes(connection, [r, t])
            whole_digest(connection, definitions)

    assert catalog.tables[r].leaves == (leaf,)
    assert set(catalog.tables) >= {r, leaf, t}
    assert estimates["public", "r"] == 1
