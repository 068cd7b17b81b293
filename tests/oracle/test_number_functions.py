"""Functions of numbers: the server's result, its display scale and its errors, beside ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import product
from random import Random

import pytest

from gateway.rowfilter import builtins
from tests.oracle.attempts import Attempt, Connection, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.oracle.number_samples import EXTREMES, PARSERS, SAMPLES, numbers, shown
from tests.servers import Database

pytestmark = [
    pytest.mark.postgres,
    # Before 16 integer powers had another scale.
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

PAIRS = 400
"""Combinations of arguments that are tried of a function, at most."""


@pytest.fixture
def server(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    return Random(seed)


SINCE_16 = frozenset({"width_bucket_float8", "width_bucket_numeric"})
COUNT = ("0", "1", "-1", "3", "10", "1000", "2147483647")
SCALE = ("0", "1", "-1", "2", "-2", "5", "-5", "16", "17", "-30", "1000", "-131071", "-131072",
         "-131073", "2147483647", "-2147483648")  # fmt: skip

EXTREME = (*SAMPLES["numeric"], *EXTREMES)

Pools = dict[int, Sequence[str]]

FUNCTIONS: list[tuple[str, str, tuple[str, ...], Pools]] = [
    *(
        (f"int{w}{name}", f"{name}(a1, a2)", (f"int{w}", f"int{w}"), {})
        for w in "48"
        for name in ("gcd", "lcm")
    ),
    *(
        (f"int{w}{name}", f"int{w}{name}(a1, a2)", (f"int{w}", f"int{w}"), {})
        for w in "248"
        for name in ("larger", "smaller")
    ),
    *((f"btint{w}cmp", f"btint{w}cmp(a1, a2)", (f"int{w}", f"int{w}"), {}) for w in "248"),
    *((f"int{w}inc", f"int{w}inc(a1)", (f"int{w}",), {}) for w in "48"),
    ("int8dec", "int8dec(a1)", ("int8",), {}),
    *((f"hashint{w}", f"hashint{w}(a1)", (f"int{w}",), {}) for w in "248"),
    *(
        (f"hashint{w}extended", f"hashint{w}extended(a1, a2)", (f"int{w}", "int8"), {})
        for w in "248"
    ),
    *((f"int{w}mod", "mod(a1, a2)", (f"int{w}", f"int{w}"), {}) for w in "248"),
    *((f"int{w}abs", "abs(a1)", (f"int{w}",), {}) for w in "248"),
    ("dround", "round(a1)", ("float8",), {}),
    ("dceil", "ceil(a1)", ("float8",), {}),
    ("dfloor", "floor(a1)", ("float8",), {}),
    ("dtrunc", "trunc(a1)", ("float8",), {}),
    ("dsign", "sign(a1)", ("float8",), {}),
    ("dsqrt", "|/ a1", ("float8",), {}),
    ("degrees", "degrees(a1)", ("float8",), {}),
    ("radians", "radians(a1)", ("float8",), {}),
    ("btfloat8cmp", "btfloat8cmp(a1, a2)", ("float8", "float8"), {}),
    ("float8larger", "float8larger(a1, a2)", ("float8", "float8"), {}),
    ("float4smaller", "float4smaller(a1, a2)", ("float4", "float4"), {}),
    (
        "width_bucket_float8",
        "width_bucket(a1, a2, a3, a4)",
        ("float8", "float8", "float8", "int4"),
        {3: COUNT},
    ),
    ("numeric_ceil", "ceil(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_floor", "floor(a1)", ("numeric",), {0: EXTREME}),
    ("round(numeric)", "round(a1)", ("numeric",), {0: EXTREME}),
    ("trunc(numeric)", "trunc(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_round", "round(a1, a2)", ("numeric", "int4"), {0: EXTREME, 1: SCALE}),
    ("numeric_trunc", "trunc(a1, a2)", ("numeric", "int4"), {0: EXTREME, 1: SCALE}),
    ("numeric_sign", "sign(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_inc", "numeric_inc(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_abs", "abs(a1)", ("numeric",), {}),
    ("numeric_scale", "scale(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_min_scale", "min_scale(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_trim_scale", "trim_scale(a1)", ("numeric",), {0: EXTREME}),
    ("numeric_div_trunc", "div(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_div", "a1 / a2", ("numeric", "numeric"), {}),
    ("numeric_mod", "mod(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_gcd", "gcd(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_lcm", "lcm(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_sqrt", "sqrt(a1)", ("numeric",), {}),
    ("numeric_cmp", "numeric_cmp(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_larger", "numeric_larger(a1, a2)", ("numeric", "numeric"), {}),
    ("numeric_smaller", "numeric_smaller(a1, a2)", ("numeric", "numeric"), {}),
    (
        "numeric_fac",
        "factorial(a1)",
        ("int8",),
        {0: ("-1", "0", "1", "2", "20", "25", "500", "32178", "9223372036854775807")},
    ),
    (
        "width_bucket_numeric",
        "width_bucket(a1, a2, a3, a4)",
        ("numeric", "numeric", "numeric", "int4"),
        {3: COUNT},
    ),
]


POWERS: list[tuple[str, str, int]] = [
    ("numeric_exp", "exp(a1)", 1),
    ("numeric_ln", "ln(a1)", 1),
    ("log(numeric)", "log(a1)", 1),
    ("numeric_log", "log(a1, a2)", 2),
    ("numeric_power", "a1 ^ a2", 2),
]


def near_one_or_not(random: Random) -> str:
    """A number, mostly positive, that shall be raised or of which the logarithm is taken."""
    if random.random() < 0.2:
        return random.choice(SAMPLES["numeric"])
    if random.random() < 0.25:
        places = random.choice((6, 7, 8, 12, 30))
        return f"{1 + Decimal(random.getrandbits(20)).scaleb(-places) * random.choice((1, -1)):f}"
    digits = random.getrandbits(random.choice((4, 10, 20, 33, 60, 90)))
    value = Decimal(digits).scaleb(-random.choice((0, 0, 1, 2, 3, 4, 7, 16, 25)))
    return f"{random.choice((value, value, value, -value)):f}"


def an_exponent(random: Random) -> str:
    """An integer, small or at a limit, or a fraction."""
    choose = random.random()
    if choose < 0.4:
        return str(random.randint(-40, 40))
    if choose < 0.6:
        return random.choice(("0.5", "-0.5", "1000", "-1000", "2147483647", "-2147483648", "3.0",
                              "2147483648", "2.00", "100000", "9999999999.5"))  # fmt: skip
    places = random.choice((0, 1, 3, 8, 20))
    return f"{Decimal(random.uniform(-30, 30)).quantize(Decimal(10) ** -places):f}"


@pytest.mark.parametrize(("key", "expression", "count"), POWERS, ids=[case[0] for case in POWERS])
def test_powers_and_logarithms_have_every_digit_of_the_server(
    server: Connection, random: Random, key: str, expression: str, count: int
) -> None:
    last = an_exponent if key in ("numeric_power", "numeric_exp") else near_one_or_not
    rows = [[near_one_or_not(random), last(random)][-count:] for _ in range(800)]
    types = ("numeric",) * count

    assert_agree(attempts(server, expression, types, rows), function_of(key, server), types)


@pytest.mark.parametrize(
    ("key", "expression", "types", "pools"), FUNCTIONS, ids=[case[0] for case in FUNCTIONS]
)
def test_a_function_of_numbers_gives_the_servers_result(
    server: Connection,
    random: Random,
    key: str,
    expression: str,
    types: tuple[str, ...],
    pools: Pools,
) -> None:
    if key in SINCE_16 and server.info.server_version < 160000:
        pytest.skip("refused: results are rounded otherwise before 16")
    rows = combinations(types, pools, random)

    found = attempts(server, expression, types, rows)

    assert_agree(found, function_of(key, server), types)


def function_of(key: str, server: Connection) -> Callable[..., object]:
    """What the gateway has for `key` on this server."""
    major = server.info.server_version // 10000
    return next(o.function for o in builtins.operations(major) if o.name == key)


def combinations(types: Sequence[str], pools: Pools, random: Random) -> list[Sequence[str]]:
    """Arguments: all combinations of the samples, or some when there are too many."""
    choices = [
        pools.get(number) or numbers(kind, random, 60 if len(types) == 1 else 12)
        for number, kind in enumerate(types)
    ]
    if len(types) <= 2:
        rows: list[Sequence[str]] = list(product(*choices))
        return random.sample(rows, PAIRS) if len(rows) > PAIRS else rows
    return [[random.choice(choice) for choice in choices] for _ in range(PAIRS)]


def assert_agree(
    found: Sequence[Attempt], function: Callable[..., object], types: Sequence[str]
) -> None:
    """Each attempt has the server's text, or its error."""
    parsers = [PARSERS[kind] for kind in types]
    differences = []
    for attempt in found:
        arguments = [
            parse(text) for parse, text in zip(parsers, attempt.arguments, strict=True) if text
        ]
        ours = outcome(function, arguments)
        if isinstance(ours, Failure):
            agree = attempt.error == ours.message
        elif isinstance(ours, float):
            read = PARSERS[types[0]](attempt.result or b"")
            agree = attempt.error is None and repr(read) == repr(ours)
        else:
            agree = attempt.error is None and attempt.result == shown(ours)
        if not agree:
            differences.append((attempt, ours))
    assert not differences, f"{len(differences)} differ: {str(differences[:5])[:2000]}"
    assert any(attempt.error is None for attempt in found)
