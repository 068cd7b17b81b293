"""Random values of every type, as SQL that a server evaluates."""

from __future__ import annotations

from collections.abc import Iterable

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'NULL');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN hour AS time;
CREATE DOMAIN price AS numeric(12,3);
CREATE DOMAIN spans AS int4multirange;
CREATE DOMAIN counts AS int[];
CREATE DOMAIN prices AS numeric(12,3)[];
CREATE TYPE span AS RANGE (subtype = float8);
"""
TEXTS = r"""ARRAY['', 'NULL', 'null', 'a"b', 'a\b', '{x}', 'x,y', ' sp ', E'\n', E'\v', 'é',
    'it''s', 'plain', '\x41', E'a\u00a0b']"""
TEXT = f"({TEXTS})[1 + floor(random() * 15)]"
FLOATS = "ARRAY['NaN', '-0', 'Infinity', '-Infinity', '0.1', '1e30', '-2.5']"
ADDRESS = "(inet '10.0.0.0' + (random() * 1e9)::bigint)"
_VALUES = {
    "boolean": "random() < 0.5",
    "smallint": "((random() - 0.5) * 65535)::smallint",
    "int": "((random() - 0.5) * 4e9)::int",
    "bigint": "((random() - 0.5) * 2 ^ (random() * 64))::bigint",
    **dict.fromkeys(("oid", "xid", "cid", "xid8"), "floor(random() * 2 ^ 32)::bigint::text"),
    "real": f"({FLOATS})[1 + floor(random() * 7)]::real",
    "float8": f"({FLOATS})[1 + floor(random() * 7)]::float8 * (1 + random())",
    "numeric(12,3)": "((random() - 0.5) * 1e9)::numeric(12,3)",
    "numeric": "((random() - 0.5) * 10 ^ (random() * 40))::numeric",
    "bytea": "decode(left(md5(random()::text), 2 * floor(random() * 5)::int), 'hex')",
    "date": "date '1900-01-01' + (random() * 80000)::int",
    "timestamp": "timestamp '1900-01-01' + random() * interval '200 years'",
    "timestamptz": "timestamptz '1900-01-01' + random() * interval '200 years'",
    "uuid": "md5(random()::text)::uuid",
    "time": "time '00:00' + random() * interval '86399 s'",
    "hour": "time '00:00' + floor(random() * 24) * interval '1 h'",
    "price": "((random() - 0.5) * 1e9)::price",
    "text": TEXT,
    "varchar(9)": TEXT,
    "char(5)": f"left({TEXT}, 5)",
    "bpchar": f"rpad({TEXT}, (random() * 9)::int)",
    "name": TEXT,
    '"char"': "chr(33 + (random() * 90)::int)",
    "mood": "(enum_range(NULL::mood))[1 + floor(random() * 3)]",
    "interval": "(random() - 0.5) * interval '40 mons' + (random() - 0.5) * interval '80 days'"
    " + (random() - 0.5) * interval '300 hours'",
    "jsonb": "jsonb_build_object('a', random() < 0.5, 'b\"', ARRAY[1, NULL])",
    "json": "json_build_object('a', random() < 0.5, 'b\"', ARRAY[1, NULL])",
    "inet": f"CASE WHEN random() < 0.5 THEN set_masklen({ADDRESS}, (random() * 32)::int)"
    " ELSE '::1:0:0'::inet + (random() * 9e18)::bigint END",
    "cidr": f"network(set_masklen({ADDRESS}, (random() * 32)::int))",
    "macaddr": "left(md5(random()::text), 12)::macaddr",
    "macaddr8": "left(md5(random()::text), 16)::macaddr8",
    "timetz": "((time '00:00' + random() * interval '86399 s')::text"
    " || (ARRAY['+00', '-05:30', '+12:45', '-15:59:59'])[1 + floor(random() * 4)])::timetz",
    "bit(11)": "(random() * 2047)::int::bit(11)",
    "bit varying(40)": "substring((random() * 1e9)::int::bit(32), 1, (random() * 20)::int)",
    "money": "((random() - 0.5) * 10 ^ (random() * 16))::numeric::money",
    "pg_lsn": "'0/0'::pg_lsn + floor(random() * 1e15)::numeric",
    "tsvector": f"to_tsvector('simple', {TEXT})",
    "tsquery": f"plainto_tsquery('simple', {TEXT} || ' and ' || {TEXT})",
    "tid": "format('(%s,%s)', (random() * 4e9)::bigint, 1 + (random() * 200)::int)",
    "pg_snapshot": "format('%s:99:%1$s,%s', 3 + (random() * 9)::int, 20 + (random() * 9)::int)",
    "jsonpath": "format('$.a[%s] ? (@ > \"%s\")', (random() * 9)::int, random())",
    "point": "point(random(), -1e9 * random())",
    "int4range": "int4range(1, 2 + (random() * 9)::int) * int4range((random() * 9)::int, NULL)",
    "int8range": "int8range(NULL, (random() * 2 ^ 62)::bigint)",
    "numrange": "numrange(1.10, 2 + round(random()::numeric, 2), '(]')",
    "daterange": "daterange('-infinity', date '2024-01-01' + (random() * 80000)::int)",
    "tsrange": "tsrange(timestamp '2024-01-01' + random() * interval '200 years', 'infinity')",
    "tstzrange": "tstzrange(timestamptz '2024-01-01 UTC' - random() * interval '9 years', NULL)",
    "int4multirange": "int4multirange(int4range(1, 3), int4range(5, 6 + (random() * 9)::int))",
    "int8multirange": "int8multirange(int8range(NULL, -(random() * 9)::bigint),"
    " int8range(7, (8 + random() * 2 ^ 62)::bigint))",
    "nummultirange": "nummultirange(numrange(-1.10, round(random()::numeric, 2), '(]'),"
    " numrange(2, 3 + random()::numeric * 1e20))",
    "datemultirange": "datemultirange(daterange(NULL, date '1900-01-01' + (random() * 80000)::int),"
    " daterange('3000-01-01', 'infinity', '[]'))",
    "tsmultirange": "tsmultirange(tsrange('-infinity', timestamp '2024-01-01' - random()"
    " * interval '99 years'), tsrange('2024-01-01', '2024-01-01 00:00:00.000001'))",
    "tstzmultirange": "tstzmultirange(tstzrange('2024-01-01 UTC', '2024-01-01 UTC'::timestamptz"
    " + random() * interval '9 years'), tstzrange('infinity', NULL))",
    "spans": "int4multirange(int4range((random() * 9)::int, NULL))",
    "span": "span(-random() / 3, random())",
    "span_multirange": "span_multirange(span(NULL, random() - 1), span(random(), 1e300))",
    "pair": f"ROW((random() * 9)::int, {TEXT})::pair",
    "line": "line(point(random(), 1), point(2, random()))",
    "lseg": "lseg(point(random(), 1), point(2, random()))",
    "box": "box(point(random(), 1), point(2, random()))",
    "path": "format('[(1,%s),(%s,-2)]', random(), random())",
    "polygon": "format('((0,0),(%s,1),(1,%s))', random(), random())",
    "circle": "circle(point(random(), -random()), random())",
}
VALUES = {name: f"({value})::{name}" for name, value in _VALUES.items()}
"""Random values by type; the infinities of dates and times have tests of their own."""
DOMAINS = {"counts": "int", "prices": "numeric(12,3)"}


def array_of(value: str) -> str:
    """SQL of a random array: NULL, empty, or of up to four items, of which some are NULL."""
    items = f"SELECT CASE WHEN random() > 0.2 AND g > 0 THEN {value} END"
    return (
        f"CASE WHEN random() > 0.1 THEN ARRAY({items} FROM generate_series(1,"
        " (random() * 4)::int + 0 * n) AS g) END"
    )


SCALARS = {name: f"CASE WHEN random() > 0.1 THEN {value} END" for name, value in VALUES.items()}
ARRAYS = {f"{name}[]": array_of(value) for name, value in VALUES.items()}
ARRAYS |= {name: f"({array_of(VALUES[item])})::{name}" for name, item in DOMAINS.items()}
WITHOUT_EQUALITY = (
    *("json", "jsonpath", "pg_snapshot"),
    *("point", "line", "lseg", "box", "path", "polygon", "circle"),
)
"""Types that have no operator ``=``, or none that orders or groups by."""
CHOSEN = (
    *("numeric(12,3)", "price", "date", "timestamp", "timestamptz", "uuid", "time", "hour"),
    *("interval", "spans"),
    *(name for name in VALUES if name.endswith("range") and not name.startswith("span")),
)
"""Types that ``[types]`` carries as themselves or as text, as it does arrays."""


def columns_sql(columns: Iterable[str]) -> str:
    """Definitions of columns that are called like their types, of which ``"char"`` is quoted."""
    return ", ".join('"{}" {}'.format(name.replace('"', '""'), name) for name in columns)


def rows_sql(table: str, values: Iterable[str], first: int, last: int) -> str:
    """INSERT of random rows; the first column is their number."""
    return (
        f"INSERT INTO {table} SELECT n, {', '.join(values)} FROM generate_series({first}, {last})"
        " AS n"
    )
