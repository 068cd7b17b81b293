"""Text of PostGIS's types: values as a real PostGIS prints them, in ``ewkb.json``.

The first line names the version that has printed them. ``python -m tests.golden.ewkb`` writes the
file again, where PostGIS is installed; ``test_postgis`` asks a server about it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from tests.support.backends.postgis import postgis_server

FILE: Final = Path(__file__).parent / "ewkb.json"
VALUES: Final = {
    "geometry": [
        "POINT(0 0)", "POINT(-0 0)", "POINT EMPTY", "SRID=4326;POINT(13.4 52.5)",
        "POINT Z (1 2 3)", "POINT M (1 2 3)", "SRID=3857;POINT ZM (1 -2 3e300 4)",
        "LINESTRING(0 0,1 1,2 0.1)", "LINESTRING EMPTY",
        "POLYGON((0 0,9 0,9 9,0 9,0 0),(1 1,2 1,2 2,1 1))",
        "MULTIPOINT(0 0,1 2)", "SRID=4326;MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))",
        "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1),GEOMETRYCOLLECTION EMPTY)",
        "CIRCULARSTRING(0 0,1 1,2 0)", "CURVEPOLYGON(CIRCULARSTRING(0 0,4 0,4 4,0 4,0 0))",
        "COMPOUNDCURVE(CIRCULARSTRING(0 0,1 1,1 0),(1 0,0 1))", "TRIANGLE((0 0,0 9,9 0,0 0))",
        "TIN(((0 0 0,0 0 1,0 1 0,0 0 0)))",
        "POLYHEDRALSURFACE(((0 0 0,0 0 1,0 1 1,0 1 0,0 0 0)))",
    ],
    "geography": [
        "POINT(13.4 52.5)", "POINT(-0 0)", "SRID=4267;POINT(1 2)", "POINT EMPTY",
        "POLYGON((0 0,9 0,9 9,0 0))", "POINT Z (1 2 3)",
    ],
}  # fmt: skip


class Value(NamedTuple):
    """A value as it is written, and as the server prints it."""

    pg_type: str
    written: str
    printed: str


def read() -> list[Value]:
    """The values of the file."""
    _, *lines = json.loads(FILE.read_text())
    return [Value(*line) for line in lines]


def ask(connection: psycopg.Connection[Any]) -> list[Value]:
    """The values as a server prints them."""
    found = []
    for pg_type, texts in VALUES.items():
        for text in texts:
            row = connection.execute(f"SELECT %s::{pg_type}::text".encode(), (text,)).fetchone()
            assert row is not None
            found.append(Value(pg_type, text, row[0]))
    return found


def write() -> None:
    """Write the file again."""
    with postgis_server() as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION postgis")
        row = connection.execute("SELECT postgis_full_version()").fetchone()
        assert row is not None
        lines = [json.dumps(line) for line in ([row[0]], *ask(connection))]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    write()
