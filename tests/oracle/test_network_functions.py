"""Addresses: the server's results and errors beside ours."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from gateway.pgtypes import identifiers, macaddr, network, network_text
from gateway.pgtypes.numeric import parse_numeric
from tests.oracle.attempts import Connection, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.oracle.number_samples import shown as shown_number
from tests.servers import Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

ROWS = 900
ADDRESSES = ("0.0.0.0", "255.255.255.255", "10.1.2.3", "10.1.2.0", "192.168.0.1", "127.0.0.1",
             "::", "::1", "::2", "::1.2.3.4", "::ffff:1.2.3.4", "::ffff:0:0", "2001:db8::1",
             "fe80::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1:0:0:2::3", "0:1::", "1::0:1",
             "::0:1:0:0", "0:0:1:0:0:1:0:0", "::7f00:1", "::100:0")  # fmt: skip
NUMBERS = ("0", "1", "-1", "255", "256", "-256", "4294967295", "4294967296", "-4294967296",
           "9223372036854775807", "-9223372036854775808")  # fmt: skip


@pytest.fixture
def server(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    return Random(seed)


def an_address(random: Random, *, cidr: bool = False) -> str:
    """Of either family, with many zero words, and any mask."""
    if random.random() < 0.35:
        address = ipaddress.ip_address(random.choice(ADDRESSES))
    elif random.random() < 0.5:
        address = ipaddress.ip_address(random.choice((0x0A010200, 0)) + random.getrandbits(10))
    else:
        words = [random.choice((0, 0, 0, 1, 0xFFFF, random.getrandbits(16))) for _ in range(8)]
        number = sum(word << (16 * place) for place, word in enumerate(words))
        address = ipaddress.IPv6Address(number)
    wide = address.max_prefixlen
    length = random.choice((wide, random.randint(0, wide), 8, 24, random.randint(wide - 16, wide)))
    if not cidr:
        return f"{address}/{length}"
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))


def a_number(random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(NUMBERS)
    value = random.getrandbits(random.randint(1, 63))
    return str(random.choice((value, -value)))


def a_macaddr(random: Random, octets: int = 6) -> str:
    text = bytes(random.choice((0, 0xFF, random.getrandbits(8))) for _ in range(octets))
    return (text[:3] + b"\xff\xfe" + text[5:] if random.random() < 0.5 else text).hex(":")


def an_lsn(random: Random) -> str:
    low = random.choice((0, 1, 0xFFFFFFFF, random.getrandbits(32)))
    return f"{random.choice((0, 1, 0xFFFFFFFF)):X}/{low:X}"


MAKERS: dict[str, Callable[[Random], str]] = {
    "inet": an_address,
    "cidr": lambda random: an_address(random, cidr=True),
    "int8": a_number,
    "int4": lambda random: str(random.choice((-1, -2, 0, 7, 8, 24, 32, 33, 64, 127, 128, 129))),
    "macaddr": a_macaddr,
    "macaddr8": lambda random: a_macaddr(random, 8),
    "pg_lsn": an_lsn,
    "numeric": lambda random: random.choice((a_number(random), "0.5", "-1.49", "NaN", "-Infinity",
                                             "Infinity", "1e30", "18446744073709551615.4")),
    "xid8": lambda random: str(random.getrandbits(40)),
    "tid": lambda random: f"({random.randint(0, 3)},{random.randint(0, 3)})",
    "uuid": lambda random: random.randbytes(16).hex(),
}  # fmt: skip
PARSERS: dict[str, Callable[[bytes], object]] = {
    "inet": network.parse_inet,
    "cidr": network.parse_inet,
    "int8": int,
    "int4": int,
    "macaddr": macaddr.parse_macaddr,
    "macaddr8": macaddr.parse_macaddr8,
    "pg_lsn": identifiers.parse_lsn,
    "numeric": parse_numeric,
    "xid8": int,
    "tid": identifiers.parse_tid,
    "uuid": bytes,
}

A, C, N, M, M8, LSN = "inet", "cidr", "int8", "macaddr", "macaddr8", "pg_lsn"
Case = tuple[str, tuple[str, ...], str, Callable[..., object]]
CASES: list[Case] = [
    ("a1", (A,), A, lambda value: value),
    ("a1", (C,), C, lambda value: value),
    *(
        (f"a1 {sql} a2", (A, A), "bool", function)
        for sql, function in (
            ("<", lambda left, right: left < right),
            ("<=", lambda left, right: left <= right),
            ("=", lambda left, right: left == right),
            ("<<", network.contained),
            ("<<=", network.contained_or_equal),
            (">>", network.contains),
            (">>=", network.contains_or_equal),
            ("&&", network.overlaps),
        )
    ),
    ("a1 < a2", (C, A), "bool", lambda left, right: left < right),
    ("a1 & a2", (A, A), A, network.bitwise_and),
    ("a1 | a2", (A, A), A, network.bitwise_or),
    ("~ a1", (A,), A, network.bitwise_not),
    ("a1 + a2", (A, N), A, network.add),
    ("a1 - a2", (A, N), A, network.subtract_number),
    ("a1 - a2", (A, A), N, network.subtract),
    ("family(a1)", (A,), N, network.family),
    ("masklen(a1)", (A,), N, network.mask_length),
    ("broadcast(a1)", (A,), A, network.broadcast),
    ("network(a1)", (A,), C, network.network),
    ("a1::cidr", (A,), C, network.network),
    ("netmask(a1)", (A,), A, network.net_mask),
    ("hostmask(a1)", (A,), A, network.host_mask),
    ("set_masklen(a1, a2)", (A, "int4"), A, network.set_mask_length),
    ("set_masklen(a1, a2)", (C, "int4"), C, network.set_cidr_mask_length),
    ("inet_merge(a1, a2)", (A, A), C, network.merge),
    ("inet_same_family(a1, a2)", (A, A), "bool", network.same_family),
    ("host(a1)", (A,), "text", network_text.host),
    ("text(a1)", (A,), "text", network_text.show),
    ("abbrev(a1)", (A,), "text", network_text.abbreviate_inet),
    ("abbrev(a1)", (C,), "text", network_text.abbreviate_cidr),
    ("a1 < a2", (M, M), "bool", lambda left, right: left < right),
    ("a1 < a2", (M8, M8), "bool", lambda left, right: left < right),
    *(
        case
        for kind in (M, M8)
        for case in (
            ("a1 & a2", (kind, kind), "text", macaddr.bitwise_and),
            ("a1 | a2", (kind, kind), "text", macaddr.bitwise_or),
            ("~ a1", (kind,), "text", macaddr.bitwise_not),
            ("trunc(a1)", (kind,), "text", macaddr.truncate),
        )
    ),
    ("macaddr8_set7bit(a1)", (M8,), "text", macaddr.set_7th_bit),
    ("a1::macaddr8", (M,), "text", macaddr.to_macaddr8),
    ("a1::macaddr", (M8,), "text", macaddr.to_macaddr),
    ("a1 < a2", (LSN, LSN), "bool", lambda left, right: left < right),
    ("a1 - a2", (LSN, LSN), "numeric", identifiers.subtract_lsns),
    ("a1 + a2", (LSN, "numeric"), LSN, identifiers.add_to_lsn),
    ("a1 - a2", (LSN, "numeric"), LSN, identifiers.subtract_from_lsn),
    ("pg_lsn(a1)", ("numeric",), LSN, identifiers.numeric_to_lsn),
    ("a1::xid", ("xid8",), N, lambda value: value & 0xFFFFFFFF),
    ("a1 < a2", ("tid", "tid"), "bool", lambda left, right: left < right),
]


@pytest.mark.parametrize(
    ("expression", "types", "result", "function"),
    CASES,
    ids=[f"{case[0]} {'-'.join(case[1])}" for case in CASES],
)
def test_an_operation_on_addresses_gives_the_servers_result(
    server: Connection,
    random: Random,
    expression: str,
    types: tuple[str, ...],
    result: str,
    function: Callable[..., object],
) -> None:
    rows = [related([MAKERS[kind](random) for kind in types], types, random) for _ in range(ROWS)]

    assert differences(server, expression, types, rows, result, function) == []


def related(row: list[str], types: Sequence[str], random: Random) -> list[str]:
    """Two addresses that have something in common, often."""
    if types == (A, A) and random.random() < 0.6:
        address, _, length = row[0].partition("/")
        shorter = random.randint(0, int(length))
        row[1] = f"{address}/{shorter}"
        if random.random() < 0.5:
            row[1] = str(ipaddress.ip_network(row[1], strict=False))
    return row


def test_the_version_of_a_uuid_is_the_servers(server: Connection, random: Random) -> None:
    if server.info.server_version < 170000:
        pytest.skip("uuid_extract_version() came with 17")
    rows = [[MAKERS["uuid"](random)] for _ in range(ROWS)]

    found = differences(
        server, "uuid_extract_version(a1)", ("uuid",), rows, N, identifiers.uuid_version
    )
    assert found == []


def test_every_char_is_read_as_the_server_prints_it(server: Connection) -> None:
    found = server.execute(
        'SELECT i::"char"::text, i, i::"char" < 5::"char", (i::"char")::int'
        " FROM generate_series(-128, 127) AS i"
    ).fetchall()

    ours = [identifiers.integer_to_char(int(str(number))) for _, number, _, _ in found]
    assert [identifiers.parse_char(str(text).encode()) for text, *_ in found] == ours
    assert [value < 5 for value in ours] == [less for _, _, less, _ in found]
    assert [identifiers.char_to_integer(value) for value in ours] == [row[3] for row in found]


def differences(
    server: Connection,
    expression: str,
    types: Sequence[str],
    rows: Sequence[Sequence[str]],
    result: str,
    function: Callable[..., object],
) -> list[object]:
    found: list[object] = []
    for attempt in attempts(server, expression, types, rows):
        arguments = [
            PARSERS[kind](text or b"") for kind, text in zip(types, attempt.arguments, strict=True)
        ]
        ours = outcome(function, arguments)
        if isinstance(ours, Failure):
            agree = attempt.error is not None and attempt.error.startswith(ours.message)
        else:
            agree = attempt.error is None and ours == read(attempt.result, result)
        if not agree:
            found.append((attempt, ours))
    return found[:5]


def read(text: bytes | None, kind: str) -> object:
    """The server's result as a value."""
    if text is None or kind == "text":
        return text
    if kind == "bool":
        return text == b"true"
    if kind == "numeric":
        assert shown_number(parse_numeric(text)) == text
    return PARSERS[kind](text)
