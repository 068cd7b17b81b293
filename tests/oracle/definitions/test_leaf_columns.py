"""Trees whose leaves have their columns in another order than the root, against native ones."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from tests.support.backends.servers import Connection, Database, DatabaseFactory
from tests.support.gateway.native_scene import NativeScene, Subscriber
from tests.support.run.majors import alternating

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


# Three levels; every table has its own order of columns, and most have had a column more.
TREES = """
    CREATE TABLE root (a int, b int, c text, d numeric(9, 2), PRIMARY KEY (a))
        PARTITION BY RANGE (a);
    CREATE TABLE middle (d numeric(9, 2), c text, gone int, a int NOT NULL, b int)
        PARTITION BY RANGE (a);
    ALTER TABLE middle DROP COLUMN gone;
    ALTER TABLE root ATTACH PARTITION middle FOR VALUES FROM (0) TO (100);
    CREATE TABLE low (c text, a int NOT NULL, d numeric(9, 2), b int);
    ALTER TABLE middle ATTACH PARTITION low FOR VALUES FROM (0) TO (50);
    CREATE TABLE high (b int, gone text, d numeric(9, 2), a int NOT NULL, c text);
    ALTER TABLE high DROP COLUMN gone;
    ALTER TABLE middle ATTACH PARTITION high FOR VALUES FROM (50) TO (100);
    CREATE TABLE rest PARTITION OF root FOR VALUES FROM (100) TO (200);
    CREATE TABLE whole (a int, b int, c text) PARTITION BY RANGE (a);
    CREATE TABLE whole_low (c text, b int, a int);
    ALTER TABLE whole ATTACH PARTITION whole_low FOR VALUES FROM (0) TO (50);
    CREATE TABLE whole_high (b int, a int, c text);
    ALTER TABLE whole ATTACH PARTITION whole_high FOR VALUES FROM (50) TO (200);
    ALTER TABLE whole REPLICA IDENTITY FULL;
    ALTER TABLE whole_low REPLICA IDENTITY FULL;
    ALTER TABLE whole_high REPLICA IDENTITY FULL;
    ALTER TABLE low ALTER c SET STORAGE EXTERNAL;
    ALTER TABLE high ALTER c SET STORAGE EXTERNAL;
    ALTER TABLE whole_low ALTER c SET STORAGE EXTERNAL;
    INSERT INTO root SELECT n, n % 10, 'copied', n / 4.0 FROM generate_series(0, 190, 7) AS n;
    INSERT INTO whole SELECT n, n % 10, 'copied' FROM generate_series(0, 190, 7) AS n;"""

PUBLICATIONS = """
    CREATE PUBLICATION root_listed FOR TABLE root (a, d, c) WHERE (a <> 7)
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION middle_filtered FOR TABLE middle WHERE (a > 5)
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION two_levels FOR TABLE root WHERE (a % 3 <> 0), middle WHERE (a > 5)
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION middle_listed FOR TABLE middle (c, a) WHERE (a < 90)
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION leaves FOR TABLE low (c, a) WHERE (a <> 9), high;
    CREATE PUBLICATION flat FOR TABLE root, low WHERE (a <> 14);
    CREATE PUBLICATION whole_filtered FOR TABLE whole WHERE (b > 3 OR c = 'x')
        WITH (publish_via_partition_root = true);
    CREATE PUBLICATION whole_leaf FOR TABLE whole_low WHERE (b < 5);
    """

ROOT = "a int PRIMARY KEY, b int, c text, d numeric(9, 2)"
MIDDLE = "d numeric(9, 2), c text, a int PRIMARY KEY, b int"
LOW = "c text, a int PRIMARY KEY, d numeric(9, 2), b int"
HIGH = "b int, d numeric(9, 2), a int PRIMARY KEY, c text"
FULL = "ALTER TABLE {0} REPLICA IDENTITY FULL;"

SUBSCRIBERS = {
    "root_only": Subscriber(
        ("root_listed", "whole_filtered"),
        {"root": "a int PRIMARY KEY, c text, d numeric(9, 2)", "whole": "a int, b int, c text"},
        FULL.format("whole"),
    ),
    "middle_only": Subscriber(
        ("middle_filtered", "whole_leaf"),
        {"middle": MIDDLE, "whole_low": "c text, b int, a int"},
        FULL.format("whole_low"),
    ),
    "root_over_middle": Subscriber(
        ("root_listed", "middle_listed"), {"root": "a int PRIMARY KEY, c text, d numeric(9, 2)"}
    ),
    "both_in_one": Subscriber(("two_levels",), {"root": ROOT}),
    "middle_over_leaves": Subscriber(("leaves", "middle_filtered"), {"middle": MIDDLE}),
    "leaves_only": Subscriber(("leaves",), {"low": "c text, a int PRIMARY KEY", "high": HIGH}),
    "flat_tree": Subscriber(("flat",), {"low": LOW, "high": HIGH, "rest": ROOT}),
    "list_of_the_middle": Subscriber(
        ("middle_listed", "flat"), {"middle": "c text, a int PRIMARY KEY", "rest": ROOT}
    ),
}

TEXTS = ("x", "y", "", None, "a" * 3000, "b" * 2500)


def workload(seed: int, transactions: int) -> list[str]:
    """Statements that move rows into and out of filters, and between leaves."""
    pick = random.Random(seed)
    statements = []
    for _ in range(transactions):
        table = pick.choice(("root", "root", "whole"))
        a, b, c = pick.randint(0, 199), pick.randint(0, 9), pick.choice(TEXTS)
        text = "NULL" if c is None else f"'{c}'"
        statements.append(
            pick.choice(
                (
                    f"INSERT INTO {table} (c, b, a) VALUES ({text}, {b}, {a})",
                    f"INSERT INTO {table} (c, b, a) VALUES ({text}, {b}, {a})",
                    f"UPDATE {table} SET b = {b} WHERE a = {a} OR a = {a} / 2 OR a = {a} / 3",
                    f"UPDATE {table} SET c = {text} WHERE a BETWEEN {a} AND {a} + 5",
                    f"UPDATE {table} SET a = {pick.randint(0, 199)} WHERE a = {a} OR a = {a} / 2",
                    f"DELETE FROM {table} WHERE a = {a}",
                )
            )
        )
    return statements


def run(connection: Connection, statements: list[str]) -> None:
    """Run each in a transaction of its own; one that meets a row that is there does nothing."""
    for statement in statements:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.UniqueViolation:
            continue


@alternating(__name__, 16, 18)
def test_rows_of_leaves_in_another_order_arrive_as_natively(
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
    seed: int,
) -> None:
    with database.connect() as connection:
        connection.execute(TREES.encode())
    scene = NativeScene(database, make_database, kafka, registry, tmp_path)
    statements = workload(seed, 300)
    scene.compare(
        PUBLICATIONS,
        SUBSCRIBERS,
        [
            lambda connection: run(connection, statements[:150]),
            lambda connection: run(connection, statements[150:]),
            lambda connection: run(
                connection,
                [
                    "TRUNCATE root",
                    "INSERT INTO root SELECT n, n % 10, 'last', n FROM generate_series(0, 199) n",
                    "UPDATE root SET c = 'end' WHERE a % 4 = 0",
                    "DELETE FROM root WHERE a % 5 = 0",
                ],
            ),
        ],
    )
