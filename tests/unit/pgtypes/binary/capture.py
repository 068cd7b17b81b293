"""Writes `sends.txt` again: ``python -m tests.unit.pgtypes.binary.capture DSN``, on PostgreSQL 18.

Each line is a value: type, its output and send function, its send format in hex, its text; the
text as a Python literal, since it may hold anything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from gateway.source.session.connection import connect

FILE: Final = Path(__file__).with_name("sends.txt")

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("t", "f"),
    "int2": ("-32768",),
    "int4": ("2147483647",),
    "int8": ("-9223372036854775808",),
    "oid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "float4": ("1000000", "1e-45", "0.1", "-0", "16777216", "NaN"),
    "float8": (
        *("1e15", "999999999999999", "1e23", "9007199254740993", "0.0001", "0.00001", "5e-324"),
        *("-Infinity", "67e14", "-0"),
    ),
    "numeric": (
        *("0.000", "-1.10", "12345678.9", "100000000", "0.00012345", "NaN", "-Infinity", "1e-20"),
        "0",
    ),
    "text": ("a b",),
    '"char"': ("a", "\\377", ""),
    "jsonb": ('{"b": 1.00}',),
    "bytea": ("\\x00ff",),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "bit(11)": ("10000000001",),
    "varbit": ("", "101"),
    "date": ("2000-01-01", "0001-12-31 BC", "infinity", "-infinity", "5874897-12-31"),
    "time": ("24:00:00", "00:00:00.000001"),
    "timetz": ("12:34:56.789+05:30", "12:00-15:59:59"),
    "timestamp": ("1999-12-31 23:59:59.999999", "4714-11-24 00:00 BC", "-infinity"),
    "timestamptz": ("2024-07-01 12:00:00.25+05:30", "0044-03-15 12:00+00 BC"),
    "interval": (
        *("1 year -1 mon 3 days -00:00:00.5", "-1 year -2 mons +3 days 04:05:06", "0", "infinity"),
        *("-infinity", "1 day"),
    ),
    "inet": ("10.1.2.3/8", "192.168.0.1", "::ffff:1.2.3.4", "1:0:0:2:0:0:0:3"),
    "cidr": ("10.0.0.0/8", "::1"),
    "macaddr": ("08:00:2b:01:02:03",),
    "pg_lsn": ("16/B374D848",),
    "tid": ("(4294967295,65535)",),
    "pg_snapshot": ("10:20:10,14",),
    "point": ("(1,-0.5)",),
    "path": ("[(1,2),(3,4)]", "((1,2),(3,4))"),
    "polygon": ("((1,2),(3,4))",),
    "line": ("{1,-1,0.5}",),
    "circle": ("<(1,2),3>",),
    "box": ("(3,4),(1,2)",),
    "lseg": ("[(1,2),(3,4)]",),
    "tsvector": ("'a':1A,2 'it''s':3C",),
    "tsquery": ("a <-> ( b <2> c ) & !( d | e:*AB )", ""),
    "int2vector": ("1 -2",),
    "int4[]": ("{}", "{{1,2},{3,NULL}}", "[0:1]={1,2}"),
    "text[]": ('{"",NULL,"null","a\\"b","{}"," x",y}',),
    "box[]": ("{(3,4),(1,2);(1,1),(0,0)}",),
    "int4range": ("empty", "[1,5)", "(,3)"),
    "tsrange": ('["2024-01-01 00:00:00",)',),
    "int4multirange": ("{[1,3),[5,9)}",),
    "pair": ('(1,"a b")', '(,"\\"\\\\")', '(,"")'),
}


def main(dsn: str) -> None:
    """Ask the server and write the file."""
    lines = []
    with connect(dsn) as connection:
        connection.execute("SET search_path = pg_temp")
        connection.execute("CREATE TYPE pair AS (a int, b text)")
        for name, literals in VALUES.items():
            functions = connection.execute(
                "SELECT typoutput::regproc::text, typsend::regproc::text FROM pg_type"
                " WHERE oid = %s::regtype",
                (name,),
            ).fetchone()
            assert functions is not None
            for literal in literals:
                # format('%s') prints by the output function, which a cast to text may not do.
                query = f"SELECT encode({functions[1]}(v), 'hex'), format('%%s', v)"
                query += f" FROM (SELECT %s::{name} AS v) AS s"
                row = connection.execute(query.encode(), (literal,)).fetchone()
                assert row is not None
                lines.append(f"{name} | {functions[0]} | {functions[1]} | {row[0]} | {row[1]!r}\n")
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
