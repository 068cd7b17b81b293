"""What the owner of one published table writes into its definition ends nothing but that table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE t (a int PRIMARY KEY);
CREATE TABLE deep (a text PRIMARY KEY);
CREATE TABLE large (a text PRIMARY KEY);
INSERT INTO t VALUES (1);
CREATE PUBLICATION p FOR TABLE t;
CREATE PUBLICATION of_deep FOR TABLE deep;
CREATE PUBLICATION of_large FOR TABLE large;
"""
DEFINED = """
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
CREATE SUBSCRIPTION {s}_deep CONNECTION '' PUBLICATION of_deep;
CREATE SUBSCRIPTION {s}_large CONNECTION '' PUBLICATION of_large;
"""
DEEP = "a" + " || 'x'" * 1_000 + " <> '" + "x" * 1_001 + "'"
LARGE = f"a <> '{'x' * 600_000}'"


def test_a_filter_that_is_deep_or_large_stops_no_other_table(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINED)
        s.run_to("0/1")
        connection.execute(f"ALTER PUBLICATION of_deep SET TABLE deep WHERE ({DEEP})".encode())
        connection.execute(f"ALTER PUBLICATION of_large SET TABLE large WHERE ({LARGE})".encode())
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("INSERT INTO deep VALUES ('x'), ('y')")
        s.run_to(current_lsn(connection))
        connection.execute("INSERT INTO t VALUES (3)")
        s.run_to(current_lsn(connection))
        assert [row[0] for row in s.rebuilt("t")] == [1, 2, 3]
        assert [row[0] for row in s.rebuilt("deep", f"{s.slot}_deep")] == ["y"]
        status = s.cli("status")
        assert status.code == 1
        assert "public.large" in status.out
        assert "bytes of text" in status.out

        connection.execute("ALTER PUBLICATION of_large SET TABLE large")
        connection.execute("INSERT INTO large VALUES ('z')")
        s.run_to(current_lsn(connection))
        assert [row[0] for row in s.rebuilt("large", f"{s.slot}_large")] == ["z"]
