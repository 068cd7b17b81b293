"""When PostgreSQL says that two values are equal: pairs for whoever must say it without asking.

Whatever tells keys apart by text (the gateway's canonical keys, the Spark job's) is held to the
same file, ``equality.json``, which a server has written and is asked about again in the tests:
``python -m tests.golden.equality``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.pq import ExecStatus

from devkit.embedded.postgres import EmbeddedPostgres

FILE: Final = Path(__file__).parent / "equality.json"
PAIRS: Final = {
    "numeric": [
        ("1.0", "1.00"), ("10", "1"), ("100", "100.000"), ("0.00", "0"), ("-0.0", "0"),
        ("-1.50", "-1.5"), ("1", "-1"), ("0.10", "0.1"), ("1e20", "100000000000000000000.0"),
        ("NaN", "NaN"), ("Infinity", "Infinity"), ("Infinity", "-Infinity"), ("NaN", "Infinity"),
    ],
    "double precision": [
        ("-0", "0"), ("NaN", "NaN"), ("NaN", "Infinity"), ("Infinity", "-Infinity"),
        ("1", "1.0000000000000002"), ("0.1", "1e-1"),
    ],
    "real": [("-0", "0"), ("NaN", "NaN"), ("1", "1.0000001")],
    "bpchar": [("a  ", "a"), (" a", "a"), ("", "  "), ("a", "b"), ("a\t", "a")],
    "character varying": [("a  ", "a"), ("", "  ")],
    "text": [("1.0", "1.00"), ("a ", "a"), ("A", "a")],
    "interval": [
        ("1 day", "24:00:00"), ("1 mon", "30 days"), ("1 year", "360 days"), ("1 year", "365 days"),
        ("1 year 2 mons", "14 mons"), ("1 day -01:00:00", "23:00:00"), ("1 mon -30 days", "0"),
        ("-1 days +24:00:00", "00:00:00"), ("-00:00:00.5", "00:00:00.5"), ("-2 mons", "-60 days"),
        ("1 day", "23:59:59.999999"), ("-1 year -2 mons +3 days -04:05:06", "-417 days -04:05:06"),
        ("infinity", "infinity"), ("infinity", "-infinity"), ("-infinity", "-infinity"),
        ("infinity", "178000000 years"), ("-infinity", "-178000000 years"),
        ("100000000 years", "1200000000 mons"),
    ],
    "numrange": [
        ("[1.0,2)", "[1.00,2.0)"), ("[1.0,2)", "(1.00,2)"), ("[10,20]", "[1,2]"),
        ("[-0.0,)", "[0,)"), ("[1.05,)", "[1.0500,)"), ("[1.05,)", "[1.5,)"), ("empty", "(1,1)"),
    ],
    "nummultirange": [("{[1.0,2),[3,4.50)}", "{[1,2.00),[3.0,4.5)}"), ("{[1,2)}", "{[1,2]}")],
    "numeric[]": [
        ("{1.0,NULL,NaN}", "{1.00,NULL,NaN}"), ("{{1.0},{20}}", "{{1},{20.0}}"), ("{1}", "{10}"),
        ("[0:0]={1.0}", "[0:0]={1}"), ("{1.0,2}", "{1.02}"), ("{0.0}", "{0}"),
    ],
    "numrange[]": [('{"[1.0,2)"}', '{"[1,2.00)"}'), ('{"[1,2)"}', '{"[1,2]"}')],
    "nummultirange[]": [('{"{[1.0,2)}"}', '{"{[1,2.00)}"}')],
    "double precision[]": [
        ("{-0,1}", "{0,1}"), ("{1,-0}", "{1,0}"), ("{-0.5}", "{0.5}"), ("{1e-07}", "{1e7}"),
        ("{-0}", "{-0.1}"), ("{1.5e+300}", "{15e299}"),
    ],
    "real[]": [("{-0,NULL}", "{0,NULL}"), ("{-1e-05}", "{-1e05}")],
}  # fmt: skip


class Pair(NamedTuple):
    """Two values as the server prints them, and whether it says that they are equal."""

    pg_type: str
    one: str
    other: str
    equal: bool


def read() -> list[Pair]:
    """The pairs of the file."""
    return [Pair(*line) for line in json.loads(FILE.read_text())]


def ask(connection: psycopg.Connection[Any]) -> list[Pair]:
    """The pairs as a server has them."""
    found = []
    for pg_type, pairs in PAIRS.items():
        for one, other in pairs:
            query = "SELECT v.a, v.b, v.a = v.b FROM (SELECT $1::{0}, $2::{0}) AS v (a, b)"
            result = connection.pgconn.exec_params(
                query.format(pg_type).encode(), [one.encode(), other.encode()]
            )
            assert result.status == ExecStatus.TUPLES_OK, result.error_message
            values = [result.get_value(0, number) for number in range(3)]
            texts = [(value or b"").decode() for value in values]
            found.append(Pair(pg_type, texts[0], texts[1], texts[2] == "t"))
    return found


def write() -> None:
    """Write the file again, as a server of version 18 has it."""
    server = EmbeddedPostgres(18).start()
    try:
        with psycopg.connect(server.dsn()) as connection:
            lines = [json.dumps(list(pair)) for pair in ask(connection)]
    finally:
        server.stop()
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    write()
