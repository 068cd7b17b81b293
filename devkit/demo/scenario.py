"""Scenario of the demo: the manual's worked examples, then statements of every kind. Pure data.

The manual's section is "Row Filters", Examples (31.3.7 in the Japanese manual). Its publications
stand here as it prints them. It replays the partitioned example with a changed publication p4;
here both forms of p4 exist at once, so the second has a name of its own. No result is written
down anywhere in this package: a native subscription has to show it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BEFORE",
    "LIVE",
    "MANUAL",
    "PUBLICATIONS",
    "PUBLISHER",
    "SUBSCRIPTIONS",
    "TABLES",
    "Step",
    "Subscription",
    "replication_sql",
    "traffic",
]

PUBLISHER: Final = "test_pub"

TABLES: Final = (
    "CREATE TABLE t1(a int, b int, c text, PRIMARY KEY(a,c))",
    "CREATE TABLE t2(d int, e int, f int, PRIMARY KEY(d))",
    "CREATE TABLE t3(g int, h int, i int, PRIMARY KEY(g))",
    "CREATE TABLE parent(a int PRIMARY KEY) PARTITION BY RANGE(a)",
    "CREATE TABLE child PARTITION OF parent DEFAULT",
    # p2 filters t2 by e, which is no part of its key. Without this, PostgreSQL refuses every
    # UPDATE and DELETE of t2 (the manual's example only inserts); the demo wants them, too.
    "ALTER TABLE t2 REPLICA IDENTITY FULL",
)
"""For publisher and native subscribers alike, as the manual makes them."""


PUBLICATIONS: Final = (
    "CREATE PUBLICATION p1 FOR TABLE t1 WHERE (a > 5 AND c = 'NSW')",
    "CREATE PUBLICATION p2 FOR TABLE t1, t2 WHERE (e = 99)",
    "CREATE PUBLICATION p3 FOR TABLE t2 WHERE (d = 10), t3 WHERE (g = 10)",
    "CREATE PUBLICATION p4 FOR TABLE parent WHERE (a < 5), child WHERE (a >= 5)\n"
    "    WITH (publish_via_partition_root=true)",
    "CREATE PUBLICATION p4_leaf FOR TABLE parent, child WHERE (a >= 5)\n"
    "    WITH (publish_via_partition_root=false)",
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription, served by the gateway and natively.

    Attributes:
        connection: Connection string of its definition; the gateway does not use it.
    """

    name: str
    publications: tuple[str, ...]
    connection: str = ""

    def statement(self, connection: str, options: str = "") -> str:
        """CREATE SUBSCRIPTION, with another connection string."""
        publications = ", ".join(self.publications)
        return (
            f"CREATE SUBSCRIPTION {self.name} CONNECTION '{connection}' PUBLICATION {publications}"
            + (f" WITH ({options})" if options else "")
        )


SUBSCRIPTIONS: Final = (
    Subscription("s1", ("p1",), "host=localhost dbname=test_pub application_name=s1"),
    Subscription("s123", ("p1", "p2", "p3")),
    Subscription("s4", ("p4",)),
    Subscription("s4_leaf", ("p4_leaf",)),
)


def replication_sql() -> str:
    """The gateway's definitions file: the same publications and subscriptions."""
    subscriptions = [s.statement(s.connection) for s in SUBSCRIPTIONS]
    return "".join(f"{statement};\n" for statement in (*PUBLICATIONS, *subscriptions))


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction on the publisher.

    Attributes:
        note: Why it is played.
        rolled_back: It ends with ROLLBACK.
    """

    note: str
    statements: tuple[str, ...]
    rolled_back: bool = False


BEFORE: Final = (
    Step(
        "the manual's rows of t1",
        (
            "INSERT INTO t1 VALUES (2, 102, 'NSW')",
            "INSERT INTO t1 VALUES (3, 103, 'QLD')",
            "INSERT INTO t1 VALUES (4, 104, 'VIC')",
            "INSERT INTO t1 VALUES (5, 105, 'ACT')",
            "INSERT INTO t1 VALUES (6, 106, 'NSW')",
            "INSERT INTO t1 VALUES (7, 107, 'NT')",
            "INSERT INTO t1 VALUES (8, 108, 'QLD')",
            "INSERT INTO t1 VALUES (9, 109, 'NSW')",
        ),
    ),
    Step(
        "rows inside and outside the filters of t2 and t3",
        (
            "INSERT INTO t2 VALUES (1, 99, 1), (2, 98, 2), (10, 50, 3), (11, NULL, 4)",
            "INSERT INTO t3 VALUES (9, 1, 1), (10, 2, 2)",
        ),
    ),
    Step(
        "the manual's rows of parent and child",
        (
            "INSERT INTO parent VALUES (2), (4), (6)",
            "INSERT INTO child VALUES (3), (5), (7)",
        ),
    ),
)
"""There before anything subscribes: the initial data synchronization has to bring them."""

MANUAL: Final = (
    Step("old and new row match p1", ("UPDATE t1 SET b = 999 WHERE a = 6",)),
    Step("only the new row matches p1", ("UPDATE t1 SET a = 555 WHERE a = 2",)),
    Step("only the old row matches p1", ("UPDATE t1 SET c = 'VIC' WHERE a = 9",)),
    Step("the partitioned example again, from empty", ("TRUNCATE parent",)),
    Step("rows through the root", ("INSERT INTO parent VALUES (2), (4), (6)",)),
    Step("rows into the partition", ("INSERT INTO child VALUES (3), (5), (7)",)),
)
"""The manual's UPDATEs in its order, then its partitioned example."""

LIVE: Final = (
    Step("filters are OR-combined: e = 99 or d = 10", ("UPDATE t2 SET e = 99 WHERE d = 2",)),
    Step("the row leaves p2 and stays out of p3", ("UPDATE t2 SET e = 98 WHERE d = 1",)),
    Step("NULL is not true", ("UPDATE t2 SET e = NULL WHERE d = 2",)),
    Step("a key change inside the filters", ("UPDATE t1 SET a = 556 WHERE a = 555",)),
    Step(
        "one key leaves p3, another takes its place",
        ("UPDATE t3 SET g = 11 WHERE g = 10", "UPDATE t3 SET g = 10 WHERE g = 9"),
    ),
    Step("a row that p1 does not know", ("DELETE FROM t1 WHERE c = 'QLD'",)),
    Step(
        "one transaction, many tables",
        (
            "INSERT INTO t1 VALUES (20, 120, 'NSW'), (21, 121, 'QLD')",
            "UPDATE t2 SET f = f + 100",
            "DELETE FROM t1 WHERE a = 6",
            "INSERT INTO parent VALUES (1), (9)",
        ),
    ),
    Step("rolled back: nobody sees it", ("INSERT INTO t1 VALUES (99, 199, 'NSW')",), True),
    Step("a truncate knows no filter", ("TRUNCATE t3",)),
    Step("and the table goes on", ("INSERT INTO t3 VALUES (10, 7, 7), (12, 8, 8)",)),
)

_STATES: Final = ("NSW", "QLD", "VIC", "ACT", "NT")
_MOST_ROWS: Final = 12


def traffic(seed: int, transactions: int) -> Iterator[Step]:
    """Random transactions, to be played after `LIVE`, over rows of their own and row 10 of t3.

    Inserts, updates of values and keys across the filters, deletes, several tables at once, some
    rolled back; at most a dozen rows a table. The same seed gives the same statements.
    """
    rng = random.Random(seed)
    rows: dict[str, set[int]] = {"t1": set(), "t2": set(), "t3": {10}, "parent": set()}
    unused = {table: iter(range(1000, 10**9)) for table in rows}
    for _ in range(transactions):
        tables = rng.sample(sorted(rows), k=rng.choice((1, 1, 2, 3)))
        rolled_back = rng.random() < 0.05
        after: dict[str, set[int]] = {}
        statements: list[str] = []
        for table in tables:
            after[table] = set(rows[table])
            statements.append(_change(rng, table, after[table], unused[table]))
        if not rolled_back:
            rows.update(after)
        yield Step("traffic", tuple(statements), rolled_back)


def _change(rng: random.Random, table: str, keys: set[int], unused: Iterator[int]) -> str:
    """One statement, and its effect on the keys that are there."""
    kinds = ["insert"] if not keys else ["insert", "update", "update", "rekey", "delete"]
    if len(keys) >= _MOST_ROWS:
        kinds = ["update", "rekey", "delete"]
    kind = rng.choice(kinds)
    key_column = {"t1": "a", "t2": "d", "t3": "g", "parent": "a"}[table]
    if kind == "insert":
        key = _new_key(rng, table, keys, unused)
        keys.add(key)
        return f"INSERT INTO {table} VALUES ({_values(rng, table, key)})"  # noqa: S608
    key = rng.choice(sorted(keys))
    where = f"WHERE {key_column} = {key}"
    if kind == "delete":
        keys.remove(key)
        return f"DELETE FROM {table} {where}"  # noqa: S608
    if kind == "update" and table != "parent":
        return f"UPDATE {table} SET {_assignments(rng, table)} {where}"  # noqa: S608
    new = _new_key(rng, table, keys, unused)
    keys.remove(key)
    keys.add(new)
    return f"UPDATE {table} SET {key_column} = {new} {where}"  # noqa: S608


def _new_key(rng: random.Random, table: str, keys: set[int], unused: Iterator[int]) -> int:
    """A key that is not there, now and then one that another filter takes."""
    if table == "t3" and 10 not in keys and rng.random() < 0.5:
        return 10
    key = next(unused)
    return -key if table == "parent" and rng.random() < 0.5 else key


def _values(rng: random.Random, table: str, key: int) -> str:
    match table:
        case "t1":
            return f"{key}, {rng.randrange(1000)}, '{rng.choice(_STATES)}'"
        case "t2":
            return f"{key}, {_e(rng)}, {rng.randrange(1000)}"
        case "t3":
            return f"{key}, {rng.randrange(1000)}, {rng.randrange(1000)}"
        case _:
            return f"{key}"


def _assignments(rng: random.Random, table: str) -> str:
    match table:
        case "t1":
            return rng.choice((f"b = {rng.randrange(1000)}", f"c = '{rng.choice(_STATES)}'"))
        case "t2":
            return rng.choice((f"f = {rng.randrange(1000)}", f"e = {_e(rng)}"))
        case _:
            return f"h = {rng.randrange(1000)}"


def _e(rng: random.Random) -> str:
    return rng.choice(("98", "99", "99", "NULL"))
