"""Filters over three tables: written at random, and evaluated by counting all rows again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from gateway.subselects.formula import (
    Formula,
    Plain,
    SetTest,
    Subselect,
    Truth,
    Value,
    evaluate,
    holds,
)

TABLES = """
CREATE TABLE cities (id int, country text, size smallint);
CREATE TABLE customers (id bigint, city int, tenant int, name varchar(9));
CREATE TABLE orders (id int PRIMARY KEY, customer int, tenant bigint, city smallint, code text);
ALTER TABLE cities REPLICA IDENTITY FULL;
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
PLAIN = {
    "cities": ("{}country = 'EU'", "{}size > 1", "{}country IS NULL", "NOT {}id IN (1, 2)"),
    "customers": ("{}tenant = 1", "{}name LIKE 'a%'", "{}city IS NOT NULL", "{}name = E'b\\\\n'"),
    "orders": ("{}code <> 'x'", "{}tenant IN (0, 2)", "{}id % 2 = 0", "{}city IS NULL"),
}
PAIRS = {
    ("orders", "customers"): (("customer", "id"), ("tenant", "tenant"), ("city", "city")),
    ("orders", "cities"): (("city", "id"), ("customer", "size"), ("code", "country")),
    ("customers", "cities"): (("city", "id"), ("name", "country"), ("id", "size")),
    ("cities", "customers"): (("id", "city"), ("country", "name"), ("size", "tenant")),
    ("customers", "orders"): (("id", "customer"), ("tenant", "tenant"), ("name", "code")),
    ("cities", "orders"): (("id", "city"), ("country", "code"), ("size", "tenant")),
}
"""Columns that can be compared: of the outer and of the inner table."""
Row = Mapping[str, bytes | None]
NEXT_TABLES = {
    "orders": ("customers", "cities"),
    "customers": ("cities", "orders"),
    "cities": ("customers", "orders"),
}


def written(random: Random, table: str = "orders", name: str = "orders", deep: int = 3) -> str:
    """A filter on `table`, which is called `name` there."""
    kind = random.random()
    if kind < 0.25 or (not deep and kind < 0.8):
        return random.choice(PLAIN[table]).format(random.choice(("", f"{name}.")))
    if kind < 0.35:
        return f"NOT ({written(random, table, name, deep)})"
    if kind < 0.55 or not deep:
        parts = [written(random, table, name, deep) for _ in range(random.randint(2, 3))]
        return random.choice((" AND ", " OR ")).join(f"({part})" for part in parts)
    return _subselect(random, table, name, deep)


def _subselect(random: Random, table: str, name: str, deep: int) -> str:
    inner = random.choice(NEXT_TABLES[table])
    alias = random.choice((f"i{deep}", inner)) if inner != name else f"i{deep}"
    outer_column, column = random.choice(PAIRS[table, inner])
    rest = []
    if random.random() < 0.8:
        rest.append(f"({written(random, inner, alias, deep - 1)})")
    source = f"{random.choice(('', 'public.'))}{inner} {'' if alias == inner else alias}"
    kind = random.choice(("IN", "NOT IN", "EXISTS", "NOT EXISTS", "= ANY", "<> ALL", "two"))
    if "EXISTS" in kind:
        sides = [f"{alias}.{column}", f"{name}.{outer_column}"]
        random.shuffle(sides)
        rest.insert(random.randint(0, len(rest)), " = ".join(sides))
        what = random.choice(("", "1", "*", "DISTINCT 1"))
        return f"{kind} (SELECT {what} FROM {source} WHERE {' AND '.join(rest)})"
    where = f" WHERE {' AND '.join(rest)}" if rest else ""
    if kind == "two":
        other_outer, other = random.choice(PAIRS[table, inner])
        return (
            f"({name}.{outer_column}, {other_outer}) IN"
            f" (SELECT {column}, {alias}.{other} FROM {source}{where})"
        )
    distinct = random.choice(("", "DISTINCT "))
    return f"{name}.{outer_column} {kind} (SELECT {distinct}{alias}.{column} FROM {source}{where})"


class Recount:
    """Members of a sub-select, found by evaluating its filter on each row of its table."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = frozenset(values)

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    @property
    def is_empty(self) -> bool:
        return not self._values


Passes = Callable[[int, Plain, Row], bool]
"""Whether a row of the table with this OID passes a plain filter."""


class Recounted:
    """Rows of all tables, by OID, and what filters say of them."""

    def __init__(self, rows: Mapping[int, Sequence[Row]], passes: Passes) -> None:
        self.rows = rows
        self._passes = passes
        self._sets: dict[Subselect, Recount] = {}

    def members(self, subselect: Subselect) -> Recount:
        if subselect not in self._sets:
            self._sets[subselect] = Recount(
                [
                    value_of(row, subselect.columns)
                    for row in self.rows[subselect.table_oid]
                    if self.wants(subselect.table_oid, subselect.filter, row)
                ]
            )
        return self._sets[subselect]

    def wants(self, table_oid: int, formula: Formula | None, row: Row) -> bool:
        def test(each: SetTest) -> Truth:
            value = value_of(row, each.columns)
            is_true = holds(each.kind, value, self.members(each.subselect))
            return Truth.YES if is_true else Truth.NO

        if formula is None:
            return True
        truth = evaluate(formula, lambda plain: self._passes(table_oid, plain, row), test)
        return truth is Truth.YES


def value_of(row: Row, columns: Sequence[str]) -> Value:
    return tuple(row[column] for column in columns)
