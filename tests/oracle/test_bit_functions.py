"""Bit strings: the server's results and errors beside ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from gateway.pgtypes import bits
from tests.oracle.attempts import Connection, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.servers import Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

ROWS = 600
BITS = ("", "0", "1", "00", "01", "10", "11", "1010", "01000000", "10000000", "000000000",
        "111111111", "1" * 31, "1" * 32, "0" * 32, "1" * 33, "1" * 64,
        "0" + "1" * 63, "1" * 65)  # fmt: skip
NUMBERS = ("0", "1", "-1", "2", "3", "-3", "8", "9", "31", "32", "64", "2147483647", "-2147483648",
           "-2147483647", "5", "7")  # fmt: skip
BIGINTS = (*NUMBERS, "9223372036854775807", "-9223372036854775808", "4294967296", "-4294967297")
LENGTHS = (
    "1",
    "2",
    "7",
    "8",
    "9",
    "31",
    "32",
    "33",
    "40",
    "63",
    "64",
    "65",
    "70",
    "100",
    "0",
    "-1",
)


@pytest.fixture
def server(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    return Random(seed)


def a_bit_string(random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(BITS)
    return "".join(random.choices("01", k=random.choice((1, 2, 3, 7, 8, 9, 15, 16, 17, 40))))


def same_length(random: Random) -> list[str]:
    first = a_bit_string(random)
    second = a_bit_string(random)
    return [first, second if random.random() < 0.2 else second[: len(first)].ljust(len(first), "1")]


def argument(kind: str, random: Random) -> str:
    if kind == "varbit":
        return a_bit_string(random)
    if random.random() < 0.5:
        return str(random.randint(-4, 12))
    return random.choice(BIGINTS if kind == "int8" else NUMBERS)


V, N = "varbit", "int4"
CASES: list[tuple[str, tuple[str, ...], Callable[..., object]]] = [
    ("a1 & a2", (V, V), bits.bitwise_and),
    ("a1 | a2", (V, V), bits.bitwise_or),
    ("a1 # a2", (V, V), bits.bitwise_xor),
    ("~ a1", (V,), bits.bitwise_not),
    ("a1 << a2", (V, N), bits.shift_left),
    ("a1 >> a2", (V, N), bits.shift_right),
    ("a1 || a2", (V, V), bits.concatenate),
    ("length(a1)", (V,), len),
    ("bit_length(a1)", (V,), len),
    ("octet_length(a1)", (V,), bits.octet_length),
    ("bit_count(a1)", (V,), bits.bit_count),
    ("substring(a1 from a2)", (V, N), bits.substring),
    ("substring(a1 from a2 for a3)", (V, N, N), bits.substring),
    ("overlay(a1 placing a2 from a3)", (V, V, N), bits.overlay),
    ("overlay(a1 placing a2 from a3 for a4)", (V, V, N, N), bits.overlay),
    ("position(a2 in a1)", (V, V), bits.position),
    ("get_bit(a1, a2)", (V, N), bits.get_bit),
    ("set_bit(a1, a2, a3)", (V, N, N), bits.set_bit),
    ("a1::bit(70)::int4", (V,), lambda value: bits.to_integer(bits.to_bit(value, 70))),
    ("int4(a1)", (V,), bits.to_integer),
    ("int8(a1)", (V,), bits.to_bigint),
    ("a1 < a2", (V, V), lambda left, right: left < right),
    ("a1 <= a2", (V, V), lambda left, right: left <= right),
    ("a1 = a2", (V, V), lambda left, right: left == right),
]


@pytest.mark.parametrize(("expression", "types", "function"), CASES, ids=[c[0] for c in CASES])
def test_an_operation_on_bit_strings_gives_the_servers_result(
    server: Connection,
    random: Random,
    expression: str,
    types: tuple[str, ...],
    function: Callable[..., object],
) -> None:
    rows: list[Sequence[str]] = [[argument(kind, random) for kind in types] for _ in range(ROWS)]
    if types[:2] == (V, V):
        rows = [[*same_length(random), *row[2:]] if row[0] else row for row in rows]

    assert differences(server, expression, types, rows, function) == []


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_an_integer_becomes_the_servers_bits(
    server: Connection, random: Random, kind: str, length: str
) -> None:
    rows = [[argument(kind, random)] for _ in range(80)]

    def function(value: bytes) -> bytes:
        return bits.from_integer(int(value), int(length))

    assert differences(server, f'"bit"(a1, {length})', (kind,), rows, function) == []


@pytest.mark.parametrize("length", ["1", "3", "8", "9", "40"])
def test_a_bit_string_is_cut_and_filled_as_the_server_does(
    server: Connection, random: Random, length: str
) -> None:
    rows = [[a_bit_string(random)] for _ in range(80)]
    size = int(length)

    for cast, function in (
        (f"a1::bit({length})", lambda value: bits.to_bit(value, size)),
        (f"a1::varbit({length})", lambda value: bits.to_varbit(value, size)),
    ):
        assert differences(server, cast, (V,), rows, function) == []


def differences(
    server: Connection,
    expression: str,
    types: Sequence[str],
    rows: Sequence[Sequence[str]],
    function: Callable[..., object],
) -> list[object]:
    found: list[object] = []
    for attempt in attempts(server, expression, types, rows):
        arguments = [
            bits.parse_bits(text or b"") if kind == V else int(text or b"")
            for kind, text in zip(types, attempt.arguments, strict=True)
        ]
        ours = outcome(function, arguments)
        if isinstance(ours, Failure):
            agree = ours.message == attempt.error
        else:
            shown = ours if isinstance(ours, bytes) else str(ours).lower().encode()
            agree = attempt.error is None and shown == attempt.result
        if not agree:
            found.append((attempt, ours))
    return found[:5]
