"""Binary send formats read as text: the server renders each value both ways, and decides."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.pq import Format

from gateway.core.errors import SchemaError
from gateway.pgtypes.binary import compile_to_text
from gateway.source.catalog.types import TypeReader
from gateway.source.session.connection import connect
from tests.support.backends.servers import PostgresServer
from tests.support.run.majors import alternating
from tests.support.run.seeds import setseed

pytestmark = [
    pytest.mark.postgres,
    alternating(__name__, 16, 18),
]

Connection = psycopg.Connection[Any]


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[Connection]:
    """A connection with the settings of a walsender's session; what a test makes is temporary."""
    with connect(postgres.dsn()) as connection:
        connection.execute("SET search_path = pg_temp")
        connection.execute(setseed())
        yield connection


def rendered(server: Connection, query: str, format_: Format) -> tuple[int, list[bytes | None]]:
    """The type OID of a query's only column, and its values as the server sends them."""
    with server.cursor(binary=format_ == Format.BINARY) as cursor:
        cursor.execute(query.encode())
        result = cursor.pgresult
        assert result is not None
        assert result.fformat(0) == format_
        values = [result.get_value(row, 0) for row in range(result.ntuples)]
        return result.ftype(0), values


def assert_read_alike(server: Connection, query: str, *, at_least: int = 1) -> None:
    """Every value of the query's only column: binary, converted, is the server's text."""
    type_oid, texts = rendered(server, query, Format.TEXT)
    _, binaries = rendered(server, query, Format.BINARY)
    to_text = compile_to_text(type_oid, TypeReader(server))

    assert len([text for text in texts if text is not None]) >= at_least
    converted = [None if data is None else to_text(data) for data in binaries]
    assert converted == texts


def values(type_name: str, *literals: str) -> str:
    """A query for the values of these literals."""
    rows = ", ".join("('{}')".format(literal.replace("'", "''")) for literal in literals)
    return f"SELECT v::{type_name} FROM (VALUES {rows}) AS s(v)"


AWKWARD_TEXTS = (
    *("", " ", "null", "NULL", "Null", "a", "a b", "\ta", 'say "x"', "back\\slash", "it's", "a,b"),
    *("{x}", "(x)", "[x]", "x;y", "añ日本", "\n", "\v\f\r", "\u00a0", "\u0085", "nulls", "\\"),
)

LITERALS: dict[str, tuple[str, ...]] = {
    "boolean": ("t", "f"),
    "int2": ("0", "1", "-1", "32767", "-32768"),
    "int4": ("0", "-1", "2147483647", "-2147483648"),
    "int8": ("0", "-1", "9223372036854775807", "-9223372036854775808"),
    "oid": ("0", "1", "4294967295"),
    "xid": ("0", "3", "4294967295"),
    "cid": ("0", "4294967295"),
    "xid8": ("0", "18446744073709551615"),
    "float4": (
        *("0", "-0", "1", "-1", "1e5", "1e6", "999999", "1000000", "123456", "1234567", "16777216"),
        *("16777217", "8388608", "8388609", "3.4028235e38", "1e-45", "1.17549435e-38", "1e-4"),
        *("0.0001", "0.00001", "0.1", "1e11", "2e11", "NaN", "Infinity", "-Infinity", "1.5e-10"),
        *("67108864", "33554432", "1e10", "4.8828125e10", "3.14159274"),
    ),
    "float8": (
        *("0", "-0", "1", "-1.5", "1e14", "1e15", "999999999999999", "1e16", "123456789012345678"),
        *("4503599627370496", "9007199254740992", "9007199254740993", "18014398509481986", "1e20"),
        *("1e22", "1e23", "2e23", "9.5e22", "1e-4", "1e-5", "0.0001", "0.00001", "5e-324"),
        *("2.2250738585072014e-308", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity"),
        *("5e-20", "67e14", "985e15", "55895e-16", "7038531e-32", "5708990770823839524233143877"),
        *("9.409340012568248e18", "9223372036854775808", "0.1", "0.3", "1e100"),
        "2.9802322387695312e-8",
    ),
    "numeric": (
        *("0", "0.0", "0.00000", "1", "-1", "1.0", "10000", "9999", "99990000", "1e20", "1e-20"),
        *("0.0001", "0.00012345", "-0.5", "12345678.9", "100000000", "100000000.00000001", "1e100"),
        *("123456789012345678901234567890.123456789", "NaN", "Infinity", "-Infinity", "0.10"),
        *("10000.5000", "0.00001", "1e-130"),
    ),
    "text": AWKWARD_TEXTS,
    "varchar(5)": ("", "añ日", "a b"),
    "char(5)": ("", "a", "añ日"),
    "name": ("", "a_name", "añ"),
    '"char"': ("", "a", "\\377", "\\200", " "),
    "json": ('{"a" : 1.0, "a":2}', "null", '"ñ"', "  [1]"),
    "jsonb": ('{"b":1.00,"a":[1,null]}', "null", '"ñ\\u00e9"', "1e2"),
    "jsonpath": ("$.a[*] ? (@ > 1)", "$"),
    "bytea": ("", "\\x00ff5c27", "\\x61"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "bit(11)": ("00000000000", "10000000001", "11111111111"),
    "varbit": ("", "0", "1", "01010101", "101010101", "0000000000000001"),
    "date": (
        *("2000-01-01", "1999-12-31", "0001-01-01", "0001-12-31 BC", "4714-11-24 BC", "2024-02-29"),
        *("5874897-12-31", "infinity", "-infinity", "12345-06-07", "0044-03-15 BC"),
    ),
    "time": ("00:00", "24:00:00", "23:59:59.999999", "12:30:00.5", "01:02:03.000001"),
    "time(2)": ("12:30:00.126",),
    "timetz": (
        *("00:00+00", "24:00:00+15:59:59", "12:00-15:59", "12:34:56.789+05:30", "01:00-00:00:07"),
        *("01:00+00:15", "01:00-08"),
    ),
    "timestamp": (
        *("2000-01-01 00:00", "1999-12-31 23:59:59.999999", "4714-11-24 00:00 BC", "infinity"),
        *("294276-12-31 23:59:59.999999", "-infinity", "0001-01-01 00:00:00.1 BC"),
        "2024-02-29 12:00",
    ),
    "timestamptz": (
        *("2000-01-01 00:00+00", "4714-11-24 00:00+00 BC", "294276-12-31 23:59:59.999999+00"),
        *("infinity", "-infinity", "2024-07-01 12:00:00.25+05:30", "0044-03-15 12:00+00 BC"),
    ),
    "interval": (
        *("0", "1 day", "-1 day", "1 year 1 mon 1 day", "-1 year -1 mon", "1 year -1 mon 5 days"),
        *("-1 mon 3 days", "-1 mon 01:00", "1 mon -01:00", "-3 days 00:00:00.5"),
        *("2 years", "13 mons"),
        *("-13 mons +2 days -00:00:00.000001", "1000000:00:00", "100:00:00.25", "-14 mons 1 day"),
        *("178956970 years 7 mons", "-178956970 years -8 mons", "2147483647 days", "1 mon -1 day"),
        *("-2147483648 days", "-2562047787:00:54", "1 day -00:00:01", "-1 day +00:00:01"),
    ),
    "inet": (
        *("192.168.0.1", "10.1.2.3/8", "0.0.0.0/0", "::", "::1", "::1/64", "::ffff:1.2.3.4", "1::"),
        *("::1.2.3.4", "2001:db8::1:0:0:1", "1:0:0:2:0:0:0:3", "1:0:2:0:3:0:4:0"),
        *("::2:0:0:0", "0:0:0:0:0:0:0:0/0", "::ffff:0:1", "::1:2", "1::/16"),
        *("2001:db8:0:1:1:1:1:1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        *("::5:6:7", "0:0:0:0:0:0:1:0", "::ffff", "255.255.255.255/32"),
    ),
    "cidr": (
        *("10", "192.168.0.0/16", "1.2.3.4", "::/0", "2001:db8::/32", "::1", "::ffff:1.2.3.0/120"),
    ),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "pg_lsn": ("0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF", "0/10"),
    "tid": ("(0,1)", "(4294967295,65535)"),
    "pg_snapshot": ("10:20:10,14,15", "1:1:"),
    "txid_snapshot": ("10:20:10,14,15",),
    "refcursor": ("a cursor",),
    "point": ("(1,2)", "(-0,1e300)", "(NaN,Infinity)", "(0.1,123456789012345678)"),
    "lseg": ("[(1,2),(3,4.5)]",),
    "box": ("(1,2),(3,4)",),
    "path": ("((1,2),(3,4))", "[(1,2),(3,4),(5,6)]", "((1,1))"),
    "polygon": ("((1,2),(3,4),(5,6.5))", "((0,0))"),
    "line": ("{1,-1,0.5}",),
    "circle": ("<(1,2),3>",),
    "tsvector": ("", "a:1A,2B,3C,4D fat:16383 'it''s' 'back\\\\slash' 'two words':5", "ñ"),
    "tsquery": (
        *("", "a", "a & b | c", "a & (b | c)", "!a & !(b | c)", "!!a", "a <-> b <-> c"),
        *("a <-> (b <-> c)", "a <3> (b & c) | !d", "'it''s':*AB & 'x\\\\y':D", "(a|b) <-> c"),
        "a:*",
        *("a <0> b", "!(a <-> b)", "(a & b) & (c & d)", "a & (b & c)", "!a <-> b", "a <-> !(b|c)"),
    ),
    "int2vector": ("1 -2 3", ""),
    "oidvector": ("1 4294967295", ""),
    "int4[]": (
        *("{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={1,2}", "[2:2][-1:0]={{1,2}}"),
        *("{{{1},{2}},{{3},{NULL}}}", "[1:1]={5}"),
    ),
    "box[]": ("{(1,2),(3,4);(5,6),(7,8)}",),
    "int4range": ("empty", "[1,5)", "(,3]", "[2,)", "(,)"),
    "numrange": ("(1.50,2.0]", "[1,1]", "empty", "(,-Infinity)"),
    "tsrange": ('["2024-01-01 12:00","2025-01-01")', "(,infinity)", '("0044-03-15 BC",]'),
    "tstzrange": ('["2024-01-01 12:00+02","2025-01-01")',),
    "daterange": ("[2024-01-01,2024-02-01]", "(-infinity,infinity)"),
    "int8range": ("[9223372036854775806,9223372036854775807)",),
    "int4multirange": ("{}", "{[1,2],[5,9)}", "{(,)}"),
    "tsmultirange": ("{[2024-01-01,2024-02-01),[2024-03-01,)}",),
    "int4range[]": ('{"[1,2)",empty}',),
    "int4multirange[]": ('{"{[1,2),[4,5)}","{}"}',),
}  # fmt: skip


@pytest.mark.parametrize("type_name", LITERALS)
def test_boundary_values_read_as_the_server_prints_them(server: Connection, type_name: str) -> None:
    literals = LITERALS[type_name]

    assert_read_alike(server, values(type_name, *literals), at_least=len(literals))


ELEMENTS = [
    name
    for name in LITERALS
    if not name.endswith(("[]", "vector")) and name not in ("tsvector", "bit(11)", "time(2)")
]


@pytest.mark.parametrize("type_name", [*ELEMENTS, "tsvector"])
def test_arrays_of_every_type_are_quoted_as_the_server_does(
    server: Connection, type_name: str
) -> None:
    inner = values(type_name, *LITERALS[type_name])

    assert_read_alike(server, f"SELECT array_agg(v) FROM ({inner} UNION ALL SELECT NULL) AS s")


@pytest.mark.parametrize("type_name", ELEMENTS)
def test_fields_of_every_type_are_quoted_as_the_server_does(
    server: Connection, type_name: str
) -> None:
    server.execute(f"CREATE TYPE pair AS (a {type_name}, b {type_name}[])".encode())
    inner = values(type_name, *LITERALS[type_name])

    assert_read_alike(server, f"SELECT ROW(v, ARRAY[v])::pair FROM ({inner}) AS s")


def test_a_composite_of_composites_with_nulls_and_dropped_attributes(server: Connection) -> None:
    server.execute(
        "CREATE TYPE inner_type AS (a int, gone int, t text);"
        "ALTER TYPE inner_type DROP ATTRIBUTE gone;"
        "CREATE TYPE outer_type AS (i inner_type, many inner_type[], n numeric(10,2));"
        "CREATE TYPE nothing AS ();"
    )

    assert_read_alike(
        server,
        "SELECT ROW(ROW(1, E'a\"b,\\\\ c'), ARRAY[ROW(2, NULL)::inner_type, NULL], 1.5)::outer_type"
        " UNION ALL SELECT ROW(NULL, NULL, NULL)::outer_type"
        " UNION ALL SELECT ROW(ROW(NULL, ''), '{}', 0)::outer_type",
        at_least=3,
    )
    assert_read_alike(server, "SELECT ROW()::nothing")


def test_a_value_with_an_attribute_that_was_added_later_is_read(server: Connection) -> None:
    server.execute("CREATE TYPE growing AS (a int)")
    row = server.execute("SELECT 'growing'::regtype::oid").fetchone()
    assert row is not None
    to_text = compile_to_text(row[0], TypeReader(server))
    server.execute("ALTER TYPE growing ADD ATTRIBUTE d date")

    query = "SELECT ROW(1, '2024-02-29')::growing"
    [data] = rendered(server, query, Format.BINARY)[1]

    assert [to_text(data or b"")] == rendered(server, query, Format.TEXT)[1]


def test_domains_read_as_their_base_type(server: Connection) -> None:
    server.execute(
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN more AS positive;"
        "CREATE DOMAIN numbers AS numeric(6,2)[]; CREATE TYPE pair AS (a int, b text);"
        "CREATE DOMAIN pairs AS pair;"
        "CREATE TABLE t (a more, b numbers, c pairs, d more[]);"
        "INSERT INTO t VALUES (5, '{1.5,NULL}', '(1,\"a b\")', '{7}')"
    )

    for column in "abcd":
        # A client is told the base type, pgoutput the domain.
        row = server.execute(
            "SELECT atttypid FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = %s",
            (column,),
        ).fetchone()
        assert row is not None
        [data] = rendered(server, f"SELECT {column} FROM t", Format.BINARY)[1]
        to_text = compile_to_text(row[0], TypeReader(server))
        assert [to_text(data or b"")] == rendered(server, f"SELECT {column} FROM t", Format.TEXT)[1]


def test_enums_and_ranges_of_users_own(server: Connection) -> None:
    server.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy, \"very\"');"
        "CREATE TYPE moods AS RANGE (subtype = mood);"
        'CREATE TYPE texts AS RANGE (subtype = text, collation = "C")'
    )
    moods = "FROM unnest(enum_range(NULL::mood)) AS v"

    assert_read_alike(server, f"SELECT v {moods}", at_least=3)
    assert_read_alike(server, f"SELECT array_agg(v) {moods}")
    assert_read_alike(server, f"SELECT pg_temp.moods(v, NULL, '[]') {moods}", at_least=3)
    inner = values("text", *AWKWARD_TEXTS)
    for bounds in ("(]", "[)"):
        ranges = f"SELECT pg_temp.texts(v, v || '!', '{bounds}') AS r FROM ({inner}) AS s"
        assert_read_alike(server, ranges, at_least=20)
        assert_read_alike(server, f"SELECT range_agg(r) FROM ({ranges}) AS s")


def test_infinite_intervals(server: Connection, postgres_major: int) -> None:
    if postgres_major < 17:
        pytest.skip("intervals are finite before PostgreSQL 17")

    assert_read_alike(server, values("interval", "infinity", "-infinity"), at_least=2)


def test_xml_where_the_server_is_built_with_it(server: Connection) -> None:
    try:
        server.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server is built without libxml")

    assert_read_alike(
        server,
        values(
            "xml",
            "<a>ñ</a>",
            "text only",
            '<?xml version="1.0" encoding="UTF-8"?><a/>',
            '<?xml version="1.0" standalone="yes"?><a/>',
            '<?xml version="1.1"?><a/>',
        ),
    )


@pytest.mark.parametrize(
    ("type_name", "literal", "reason"),
    [
        ("money", "1", "lc_monetary"),
        ("regclass", "pg_class", "does not say exactly"),
        ("regtype", "int4", "does not say exactly"),
        ("regproc", "now", "does not say exactly"),
        ("regrole", "postgres", "does not say exactly"),
        ("aclitem", "=r/postgres", "no binary format"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused(
    server: Connection, type_name: str, literal: str, reason: str
) -> None:
    server.execute(f"CREATE TYPE holder AS (a int, b {type_name}[])".encode())
    for shown in (type_name, f"{type_name}[]", "holder"):
        row = server.execute(f"SELECT '{shown}'::regtype::oid".encode()).fetchone()
        assert row is not None
        with pytest.raises(SchemaError, match=reason) as caught:
            compile_to_text(row[0], TypeReader(server))
        assert "binary = false" in (caught.value.hint or "")


def test_every_type_with_a_send_function_is_read_or_refused_knowingly(server: Connection) -> None:
    rows = server.execute(
        "SELECT oid, typname FROM pg_type WHERE typsend <> 0 AND oid < 16384 AND typtype = 'b'"
        " AND typelem = 0 AND typnamespace = 'pg_catalog'::regnamespace"
    ).fetchall()
    refused = set()
    for oid, name in rows:
        try:
            compile_to_text(oid, TypeReader(server))
        except SchemaError:
            refused.add(name)

    internal = {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list"} | {
        "pg_brin_bloom_summary",
        "pg_brin_minmax_multi_summary",
    }
    assert {n for n in refused - internal if not n.startswith("reg")} == {"money"}


COUNT = 3000


def test_random_numbers(server: Connection, seed: int) -> None:
    random = Random(seed)
    rows = [
        (
            struct.unpack("!f", random.randbytes(4))[0],
            struct.unpack("!d", random.randbytes(8))[0],
            random.getrandbits(63) - random.getrandbits(63),
        )
        for _ in range(COUNT)
    ]
    # Around the powers of two and of ten, where the neighbours are uneven and ties can lie.
    for exponent in range(-149, 128):
        bits = random.getrandbits(24)
        rows += [(2.0**exponent, 2.0**exponent, 0), (bits * 2.0**-26, bits * 2.0 ** (exponent), 0)]
    rows += [
        (float(f"{d}e{e}"), float(f"{d}e{e}"), d) for d in range(1, 100) for e in range(-40, 37)
    ]
    rows += [(1.0, float(f"{d}e{e}"), d) for d in range(1, 40) for e in range(37, 307, 3)]
    # A decimal of few digits just between two doubles: an odd number of 54 bits.
    for power in range(1, 24):
        first = 2**53 // 5**power | 1
        rows += [
            (1.0, float((first + 2 * i) * 5**power * 2**e), i)
            for i in range(20)
            for e in (0, 1, power)
        ]
    server.execute("CREATE TEMP TABLE v (r real, f double precision, i bigint)")
    with server.cursor().copy("COPY v FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["float4", "float8", "int8"])
        for row in rows:
            copy.write_row(row)

    for column in ("r", "f", "i"):
        assert_read_alike(server, f"SELECT {column} FROM v", at_least=COUNT)


@pytest.mark.parametrize(
    "expression",
    [
        "(random() - 0.5)::numeric * (10::numeric ^ (random() * 60 - 30)::int)",
        "trunc((random() * 1e9)::numeric, (random() * 12)::int)",
        "round((random() * 1e9)::numeric, -(random() * 12)::int)",
        "'4714-11-24 BC'::date + (random() * 2e6 * (1 + random() * 1000))::int",
        "time '00:00' + random() * interval '24 hours'",
        "timestamp '4714-11-24 BC' + random() * interval '298000 years'",
        "timestamptz '2000-01-01 UTC' + (random() - 0.5) * interval '4000 years'",
        "make_interval(months => (random() * 100 - 50)::int, days => (random() * 20 - 10)::int,"
        " secs => round((random() * 20000 - 10000)::numeric, (random() * 6)::int))",
        "md5(random()::text)::uuid",
        "point(random() * 1e17, random() / 1e6)",
        "decode(md5(random()::text), 'hex')",
        "to_tsvector('simple', md5(random()::text) || ' ' || md5(random()::text))",
        "int4range((random() * 10)::int, 10 + (random() * 10)::int)",
        "ARRAY[random()::text, NULL, chr(33 + (random() * 90)::int)]",
        "ARRAY[[random(), i], [-random(), 0.1]]",
        "('::'::inet + (random() * 9e18)::bigint)",
        "set_masklen(inet '10.0.0.0' + (random() * 1e7)::bigint, (random() * 32)::int)",
        "((random() * 9e18)::bigint)::bit(64)",
        "jsonb_build_object('a', random(), 'b', md5(i::text))",
    ],
)  # fmt: skip
@pytest.mark.seeded
def test_random_values(server: Connection, expression: str) -> None:
    query = f"SELECT {expression} AS v FROM generate_series(1, 500) AS i"
    server.execute(f"CREATE TEMP TABLE v AS {query}".encode())

    assert_read_alike(server, "SELECT v FROM v", at_least=500)


def test_addresses_of_zeros_and_ones(server: Connection, seed: int) -> None:
    random = Random(seed)
    addresses = [
        ":".join(f"{random.choice((0, 0, 0, 1, 0xFFFF, 0xDB8)):x}" for _ in range(8))
        for _ in range(1000)
    ]

    assert_read_alike(server, values("inet", *addresses), at_least=1000)


def test_random_search_queries(server: Connection, seed: int) -> None:
    random = Random(seed)

    def query(depth: int) -> str:
        if depth == 0 or random.random() < 0.2:
            return random.choice(("a", "b:*", "c:AB", "'it''s'"))
        if random.random() < 0.25:
            return f"!({query(depth - 1)})"
        operator = random.choice(("&", "|", "<->", "<2>"))
        return f"({query(depth - 1)}) {operator} ({query(depth - 1)})"

    assert_read_alike(server, values("tsquery", *(query(4) for _ in range(500))), at_least=500)
