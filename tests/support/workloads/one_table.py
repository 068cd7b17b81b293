"""Changes of a small table at random, of which a row filter hides some from the subscriber."""

from __future__ import annotations

import random

from tests.support.backends.servers import Connection

__all__ = ["FILTERED", "TABLE", "change_at_random"]

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text);"
FILTERED = "FOR TABLE t WHERE (b <> 'hidden')"
_KEYS = 20


def change_at_random(connection: Connection, seed: int, first: int, statements: int = 60) -> None:
    """Insert, update and delete rows, and change their keys, which begin with `first`."""
    pick = random.Random(seed)
    for number in range(statements):
        key, moved = first + pick.randrange(_KEYS), first + pick.randrange(_KEYS)
        text = pick.choice(["hidden", f"text {number}", ""])
        statement = pick.choice(
            (
                f"INSERT INTO t VALUES ({key}, '{text}') ON CONFLICT DO NOTHING",
                f"UPDATE t SET b = '{text}' WHERE a = {key}",
                f"UPDATE t SET a = {moved}, b = '{text}' WHERE a = {key}"
                f" AND NOT EXISTS (SELECT FROM t WHERE a = {moved})",
                f"DELETE FROM t WHERE a = {key}",
            )
        )
        connection.execute(statement.encode())
