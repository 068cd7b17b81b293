"""Ranges and multiranges: every function and operator beside the server's, over all bounds.

PGSLUICE_ORACLE_SEED repeats a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from random import Random

import pytest

from gateway.pgtypes import multiranges, ranges
from gateway.pgtypes.arrays import parse_array
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.nan import NotANumber
from gateway.rowfilter.builtins import ranges as area
from gateway.rowfilter.expr import Operation, Signature
from tests.oracle.attempts import Attempt, Connection, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.servers import DatabaseFactory, PostgresServer

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

OPERATIONS = {operation.name: operation for operation in area.OPERATIONS}


@dataclass(frozen=True)
class Kind:
    """A range type and values of its subtype, in order, beginning and ending at the last ones."""

    name: str
    element: str
    values: tuple[str, ...]

    @property
    def multirange(self) -> str:
        return self.name.removesuffix("range") + "multirange"


KINDS = (
    Kind("int4range", "int4", ("-2147483648", "-1", "0", "1", "2", "7", "2147483647")),
    Kind(
        "int8range",
        "int8",
        ("-9223372036854775808", "0", "1", "2", "3000000000", "9223372036854775807"),
    ),
    Kind(
        "numrange",
        "numeric",
        ("-Infinity", "-1.5", "0", "0.00", "1", "1.0", "2.50", "Infinity", "NaN"),
    ),
    Kind(
        "daterange",
        "date",
        ("-infinity", "4714-11-24 BC", "2023-12-31", "2024-01-01", "2024-01-02", "5874897-12-31",
         "infinity"),
    ),
    Kind(
        "tsrange",
        "timestamp",
        ("-infinity", "0044-03-15 01:02:03 BC", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000001",
         "294276-12-31 23:59:59.999999", "infinity"),
    ),
    Kind(
        "tstzrange",
        "timestamptz",
        ("-infinity", "2024-01-01 00:00:00+00", "2024-01-01 12:00:00.5+00", "infinity"),
    ),
)  # fmt: skip
by_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
FLAGS = ("[]", "[)", "(]", "()")


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[Connection]:
    """One connection for all: the tests leave nothing behind."""
    factory = DatabaseFactory(postgres)
    try:
        with factory().connect() as connection:
            connection.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'")
            yield connection
    finally:
        factory.drop_all()


@pytest.fixture(scope="module")
def random() -> Random:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    return Random(seed)


def parser(kind: str) -> Callable[[bytes], object]:
    """Reads the text of a value of a type."""
    if kind.endswith("[]"):
        return partial(parse_array, parse=parser(kind.removesuffix("[]")))
    if kind in area.PARSERS:
        return area.PARSERS[kind]
    for of_range in KINDS:
        if of_range.element == kind:
            return ranges.SUBTYPES[of_range.name].parse
    if kind == "bool":
        return lambda text: text == b"true"
    return float if kind == "float8" else int if kind == "int" else bytes


def identical(left: object, right: object) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float | NotANumber) and isinstance(right, float | NotANumber):
        return repr(left).lower() == repr(right).lower()
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    return type(left) is type(right) and left == right


def agree(attempt: Attempt, got: object, result: str) -> bool:
    if attempt.error is not None:
        # Ours leaves out the value that PostgreSQL quotes.
        return isinstance(got, Failure) and attempt.error.endswith(
            got.message.removeprefix("value")
        )
    wanted = None if attempt.result is None else parser(result)(attempt.result)
    return identical(got, wanted)


def differences(
    server: Connection,
    operation: Operation,
    expression: str,
    types: Sequence[str],
    result: str,
    rows: Sequence[Sequence[str | None]],
) -> list[str]:
    found = []
    parsers = [parser(kind) for kind in types]
    for attempt in attempts(server, expression, types, rows):
        arguments = [
            None if text is None else parse(text)
            for text, parse in zip(attempt.arguments, parsers, strict=True)
        ]
        got = outcome(operation.function, arguments)
        if not agree(attempt, got, result):
            found.append(f"{expression} of {attempt.arguments}: {got!r}, the server {attempt}")
        if isinstance(got, Failure) and not operation.can_raise:
            found.append(f"{operation.name} raised {got}")
        if got is None and not operation.nullable:
            found.append(f"{operation.name} returned None")
    return found


def all_ranges(kind: Kind) -> list[str]:
    """Every range between two of the values, with all kinds of bounds that the type takes."""
    found = ["empty", "(,)"]
    last = kind.values[-1]
    for value in kind.values:
        found += [f'["{value}",)', f'("{value}",)', f'(,"{value}")', f'(,"{value}"]']
    for number, low in enumerate(kind.values):
        for high in kind.values[number:]:
            found += [f'{flags[0]}"{low}","{high}"{flags[1]}' for flags in FLAGS]
    if kind.element in ("int4", "int8"):  # there is no value after the last
        return [text for text in found if f'"{last}"]' not in text and f'("{last}"' not in text]
    if kind.element == "date":
        return [t for t in found if '"5874897-12-31"]' not in t and '("5874897-12-31"' not in t]
    return found


def random_multiranges(kind: Kind, random: Random, count: int) -> list[str]:
    pool = all_ranges(kind)
    some = (random.choices(pool, k=random.choice((1, 1, 2, 3, 5))) for _ in range(count))
    return ["{}", "{empty}", "{(,)}", *(f"{{{','.join(parts)}}}" for parts in some)]


PREDICATES = (
    ("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="),
)  # fmt: skip
PLACES = (
    ("overlaps", "&&"), ("before", "<<"), ("after", ">>"), ("overleft", "&<"),
    ("overright", "&>"), ("adjacent", "-|-"), ("contains", "@>"), ("contained_by", "<@"),
)  # fmt: skip
SETS = (("union", "+"), ("minus", "-"), ("intersect", "*"))
BOUNDS = ("isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf", "lower", "upper")


@by_kind
def test_of_two_ranges(server: Connection, random: Random, kind: Kind) -> None:
    texts = all_ranges(kind)
    rows = list(product(texts, texts))
    rows = random.sample(rows, min(1000, len(rows)))
    pair = [kind.name, kind.name]
    found = []
    for suffix, sign in (*PREDICATES, *PLACES):
        operation = OPERATIONS[f"range_{suffix}"]
        found += differences(server, operation, f"a1 {sign} a2", pair, "bool", rows)[:3]
    for suffix, sign in SETS:
        operation = OPERATIONS[f"range_{suffix}"]
        found += differences(server, operation, f"a1 {sign} a2", pair, kind.name, rows)[:3]
    operation = OPERATIONS["range_merge"]
    found += differences(server, operation, "range_merge(a1, a2)", pair, kind.name, rows)[:3]
    operation = OPERATIONS["range_cmp"]
    found += differences(server, operation, "range_cmp(a1, a2)", pair, "int", rows)[:3]
    assert not found, "\n".join(found)


@by_kind
def test_of_a_range_and_a_value(server: Connection, kind: Kind) -> None:
    rows = list(product(all_ranges(kind), kind.values))
    turned = [(value, text) for text, value in rows]
    contains, contained = OPERATIONS["range_contains_elem"], OPERATIONS["elem_contained_by_range"]

    found = differences(server, contains, "a1 @> a2", [kind.name, kind.element], "bool", rows)
    found += differences(server, contained, "a1 <@ a2", [kind.element, kind.name], "bool", turned)
    assert not found, "\n".join(found[:10])


@by_kind
def test_of_the_bounds(server: Connection, random: Random, kind: Kind) -> None:
    found = []
    for name, (of, texts) in product(
        BOUNDS,
        (
            (kind.name, all_ranges(kind)),
            (kind.multirange, random_multiranges(kind, random, 200)),
        ),
    ):
        prefix = "range" if of == kind.name else "multirange"
        operation = OPERATIONS[f"{prefix}_{name.removeprefix('is')}"]
        result = kind.element if name in ("lower", "upper") else "bool"
        rows = [(text,) for text in texts]
        found += differences(server, operation, f"{name}(a1)", [of], result, rows)[:3]
    assert not found, "\n".join(found)


@by_kind
def test_of_two_multiranges(server: Connection, random: Random, kind: Kind) -> None:
    texts = random_multiranges(kind, random, 400)
    rows = [(random.choice(texts), random.choice(texts)) for _ in range(500)]
    rows += list(product(texts[:3], texts[:40])) + list(product(texts[:40], texts[:3]))
    pair = [kind.multirange, kind.multirange]
    found = []
    for suffix, sign in PREDICATES:
        operation = OPERATIONS[f"multirange_{suffix}"]
        found += differences(server, operation, f"a1 {sign} a2", pair, "bool", rows)[:3]
    for suffix, sign in PLACES:
        operation = OPERATIONS[f"multirange_{suffix}_multirange"]
        found += differences(server, operation, f"a1 {sign} a2", pair, "bool", rows)[:3]
    for suffix, sign in SETS:
        operation = OPERATIONS[f"multirange_{suffix}"]
        found += differences(server, operation, f"a1 {sign} a2", pair, kind.multirange, rows)[:3]
    operation = OPERATIONS["multirange_cmp"]
    found += differences(server, operation, "multirange_cmp(a1, a2)", pair, "int", rows)[:3]
    assert not found, "\n".join(found)


@by_kind
def test_of_a_multirange_and_a_range(server: Connection, random: Random, kind: Kind) -> None:
    texts, parts = random_multiranges(kind, random, 300), all_ranges(kind)
    rows = [(random.choice(texts), random.choice(parts)) for _ in range(500)]
    rows += list(product(texts[:3], parts[:30]))
    turned = [(part, text) for text, part in rows]
    found = []
    for suffix, sign in PLACES:
        operation = OPERATIONS[f"multirange_{suffix}_range"]
        types = [kind.multirange, kind.name]
        found += differences(server, operation, f"a1 {sign} a2", types, "bool", rows)[:3]
        operation = OPERATIONS[f"range_{suffix}_multirange"]
        found += differences(
            server, operation, f"a1 {sign} a2", types[::-1], "bool", turned
        )[:3]  # fmt: skip
    assert not found, "\n".join(found)


@by_kind
def test_of_a_multirange_and_a_value(server: Connection, random: Random, kind: Kind) -> None:
    rows = list(product(random_multiranges(kind, random, 150), kind.values))
    turned = [(value, text) for text, value in rows]
    contains = OPERATIONS["multirange_contains_elem"]
    contained = OPERATIONS["elem_contained_by_multirange"]

    types = [kind.multirange, kind.element]
    found = differences(server, contains, "a1 @> a2", types, "bool", rows)
    found += differences(server, contained, "a1 <@ a2", types[::-1], "bool", turned)
    assert not found, "\n".join(found[:10])


@by_kind
def test_construction_of_ranges(server: Connection, kind: Kind) -> None:
    result = TYPES[kind.name][0]
    element = TYPES[kind.element][0]
    operation = area.FACTORIES["range_constructor3"](
        Signature((element, element, TYPES["text"][0]), result)
    )
    assert operation is not None
    assert not operation.strict
    values = (*kind.values, None)
    flags = (*FLAGS, None, "", "[", "[]]", "][", "ab")
    found = differences(
        server, operation, f"{kind.name}(a1, a2, a3)", [kind.element, kind.element, "text"],
        kind.name, list(product(values, values, flags)),
    )  # fmt: skip
    operation = area.FACTORIES["range_constructor2"](Signature((element, element), result))
    assert operation is not None
    found += differences(
        server, operation, f"{kind.name}(a1, a2)", [kind.element, kind.element],
        kind.name, list(product(values, values)),
    )  # fmt: skip
    assert not found, "\n".join(found[:10])


@by_kind
def test_construction_of_multiranges(server: Connection, random: Random, kind: Kind) -> None:
    name, pool = kind.multirange, all_ranges(kind)

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '\\"') + '"'

    arrays: list[Sequence[str | None]] = [
        ("{}",),
        ("{NULL}",),
        ('{empty,NULL,"(,)"}',),
        ('{{"(,)"}}',),
    ]
    for _ in range(300):
        parts = random.choices(pool, k=random.choice((1, 2, 3, 6)))
        arrays.append(("{" + ",".join(map(quoted, parts)) + "}",))
    rows = [(text,) for text in pool]
    found = differences(
        server, OPERATIONS["multirange_constructor2"], f"{name}(VARIADIC a1)",
        [f"{kind.name}[]"], name, arrays,
    )  # fmt: skip
    for expression in (f"{name}(a1)", f"a1::{name}", "multirange(a1)"):
        operation = OPERATIONS["multirange_constructor1"]
        found += differences(server, operation, expression, [kind.name], name, rows)
    texts = [(text,) for text in random_multiranges(kind, random, 200)]
    operation = OPERATIONS["range_merge_from_multirange"]
    found += differences(server, operation, "range_merge(a1)", [name], kind.name, texts)
    assert not found, "\n".join(found[:10])


@by_kind
def test_the_distance_of_two_values(server: Connection, kind: Kind) -> None:
    name = f"{kind.name}_subdiff"
    rows = list(product((*kind.values, "1e400"), repeat=2))
    if kind.element != "numeric":
        rows = list(product(kind.values, repeat=2))

    found = differences(
        server, OPERATIONS[name], f"{name}(a1, a2)", [kind.element] * 2, "float8", rows
    )
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(
    "test",
    ["x <@ {}", "{} @> x", "elem_contained_by_range(x, {})", "range_contains_elem({}, x)"],
)
@pytest.mark.parametrize("text", ["(,)", "empty", "[1,)", "(,1)", "[1,5)"])
def test_null_in_a_constant_range_is_refused_where_it_is_not_null(
    server: Connection, postgres_major: int, test: str, text: str
) -> None:
    """From 17 on the planner folds some tests, and what it folds does not look at the value."""
    server.execute("CREATE TEMP TABLE IF NOT EXISTS nulls AS SELECT NULL::int AS x")
    expression = test.format(f"'{text}'::int4range")
    found = server.execute(f"SELECT {expression} FROM nulls".encode()).fetchone()
    assert found is not None

    first = test.startswith(("{", "range"))
    key = "range_contains_elem" if first else "elem_contained_by_range"
    [operation] = [one for one in area.operations(postgres_major) if one.name == key]
    constants = {0 if first else 1: parser("int4range")(text.encode())}
    refusal = None if operation.specialize is None else operation.specialize(constants)
    assert isinstance(refusal, str) is (found[0] is not None)


def test_there_is_an_empty_multirange(server: Connection) -> None:
    [attempt] = attempts(server, "nummultirange()", ["int"], [("1",)])

    made = OPERATIONS["multirange_constructor0"].function()
    assert made == multiranges.read_multirange(attempt.result or b"", bytes)
