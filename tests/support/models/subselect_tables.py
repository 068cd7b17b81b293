"""Rows of three tables, random filters over them as trees, and random changes.

Plain filters are names of columns: true where the column is ``t``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from gateway.subselects.formula import (
    AllOf,
    AnyOf,
    Formula,
    Plain,
    SetTest,
    SetTestKind,
    Subselect,
    Value,
)
from tests.support.models.subselects import Recounted, Row

CITIES, CUSTOMERS, ORDERS = 1, 2, 3
COLUMNS = {
    CITIES: ("id", "country", "eu"),
    CUSTOMERS: ("id", "city", "vip"),
    ORDERS: ("id", "customer", "city", "open", "doc"),
}
PLAIN = {CITIES: "eu", CUSTOMERS: "vip", ORDERS: "open"}
INNER = {
    CITIES: ((CUSTOMERS, ("id", "city")),),
    CUSTOMERS: ((CITIES, ("city", "id")), (CITIES, ("id", "country"))),
    ORDERS: (
        (CUSTOMERS, ("customer", "id")),
        (CITIES, ("city", "id")),
        (CUSTOMERS, ("city", "city")),
    ),
}
"""For each table those of its sub-selects, with the columns that are compared."""


@dataclass(frozen=True)
class View:
    """A row as filters see it."""

    row: Row

    def plain(self, plain: Plain) -> bool:
        return self.row[plain.text] == b"t"

    def text(self, column: str) -> bytes | None:
        return self.row[column]

    def value(self, columns: tuple[str, ...]) -> Value:
        return tuple(self.row[column] for column in columns)


def draw_formula(random: Random, table: int = ORDERS, deep: int = 2) -> Formula:
    kind = random.random()
    if kind < 0.2 or (not deep and kind < 0.7):
        return Plain(PLAIN[table])
    if kind < 0.45 or not deep:
        parts = tuple(draw_formula(random, table, max(deep - 1, 0)) for _ in range(2))
        return random.choice((AllOf, AnyOf))(parts)
    return _draw_test(random, table, deep)


def draw_tested(random: Random) -> Formula:
    """A filter on orders with a test, at least."""
    test = _draw_test(random, ORDERS, 2)
    if random.random() < 0.6:
        return test
    parts = [test, draw_formula(random)]
    random.shuffle(parts)
    return random.choice((AllOf, AnyOf))(tuple(parts))


def _draw_test(random: Random, table: int, deep: int) -> SetTest:
    inner, pair = random.choice(INNER[table])
    pairs = [pair]
    kinds = list(SetTestKind)
    if random.random() < 0.2:
        pairs.append(random.choice([pair for oid, pair in INNER[table] if oid == inner]))
        kinds.remove(SetTestKind.NOT_IN)
    rest = draw_formula(random, inner, deep - 1) if random.random() < 0.8 else None
    subselect = Subselect(inner, tuple(column for _, column in pairs), rest)
    return SetTest(random.choice(kinds), tuple(column for column, _ in pairs), subselect)


class Change(NamedTuple):
    """A change of a table; neither row: TRUNCATE."""

    table: int
    old: Row | None
    new: Row | None


def draw_row(random: Random, table: int, key: int, values: int = 3) -> Row:
    def few() -> bytes | None:
        return None if random.random() < 0.15 else b"%d" % random.randrange(values)

    row: dict[str, bytes | None] = {column: few() for column in COLUMNS[table]}
    row[PLAIN[table]] = random.choice((b"t", b"f"))
    if table == ORDERS:
        row |= {"id": b"%d" % key, "doc": b"D%d" % random.randrange(99)}
    return row


@dataclass
class Tables:
    """Rows of each table, by numbers that are not in them."""

    random: Random
    rows: dict[int, dict[int, Row]]

    @classmethod
    def draw(cls, random: Random, values: int = 3) -> Tables:
        sizes = {CITIES: 3, CUSTOMERS: 4, ORDERS: 6}
        rows = {
            table: {
                key: draw_row(random, table, key, values) for key in range(random.randint(0, most))
            }
            for table, most in sizes.items()
        }
        return cls(random, rows)

    def transaction(self, *tables: int) -> list[Change]:
        """Change one to four rows of some tables, rarely all."""
        return [self._change(self.random.choice(tables)) for _ in range(self.random.randint(1, 4))]

    def _change(self, table: int) -> Change:
        rows, random = self.rows[table], self.random
        if random.random() < 0.03:
            rows.clear()
            return Change(table, None, None)
        key = random.randrange(6)
        old = rows.pop(key, None)
        new = None if old is not None and random.random() < 0.25 else draw_row(random, table, key)
        if new is not None:
            rows[key] = new
        return Change(table, old, new)

    def recounted(self) -> Recounted:
        return recounted(self.rows)


def recounted(rows: Mapping[int, Mapping[int, Row]]) -> Recounted:
    return Recounted(
        {table: tuple(found.values()) for table, found in rows.items()},
        lambda _, plain, row: View(row).plain(plain),
    )
