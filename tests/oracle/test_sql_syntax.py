"""Functions with a syntax of their own, which the server prints without the casts of arguments."""

from __future__ import annotations

import pytest

from gateway.definitions.model import Collation, Column
from gateway.pgtypes.catalog import TYPES
from gateway.rowfilter import compile_filter
from tests.oracle.majors import MAJORS
from tests.servers import Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

COLUMNS = {
    "t": "text", "v": "varchar", "p": "bpchar", "k": "name", "h": "bytea", "b": "bit",
    "w": "varbit", "s": "int2", "d": "date",
}  # fmt: skip
SQL_TYPES = {"p": "char(6)", "b": "bit(4)", "w": "varbit(8)"}
ROWS = (
    ("  ab ", "xabx", "ab", "abc", "\\x0102", "0110", "10110", 2, "2024-02-29"),
    ("é日本", "éab", "  a", "", "\\x", "1111", "", 1, "0044-03-15 BC"),
    (None,) * 9,
)
C = Collation('pg_catalog."C"', deterministic=True, c_order=True)
FORMS = [
    *(f"SUBSTRING({c} FROM 2) = 'b'" for c in "tvpk"),
    *(f"SUBSTRING({c} FROM s) = 'ab'" for c in "tvpk"),
    *(f"SUBSTRING({c} FROM 1 FOR 2) <> ''" for c in "tvpk"),
    *(f"SUBSTRING({c} FROM 'a.') = 'ab'" for c in "tvpk"),
    "SUBSTRING(v SIMILAR '%#\"ab#\"%' ESCAPE '#') = 'ab'",
    "SUBSTRING(h FROM 2) = '\\x02'",
    *(f"SUBSTRING({c} FROM s) = B'0'" for c in "bw"),
    *(f"TRIM(BOTH FROM {c}) = 'ab'" for c in "tvpk"),
    *(f"TRIM(LEADING 'x' FROM {c}) = 'abx'" for c in "tvpk"),
    *(f"TRIM(TRAILING FROM {c}) LIKE '%b'" for c in "tvpk"),
    *(f"POSITION('a' IN {c}) > s" for c in "tvpk"),
    "POSITION(B'11' IN w) = 3",
    "POSITION(v IN t) = 0",
    *(f"OVERLAY({c} PLACING 'Z' FROM s) = 'aZc'" for c in "tvpk"),
    "OVERLAY(w PLACING b FROM s FOR 1) = B'0'",
    "EXTRACT(year FROM d) = 2024",
]


@pytest.fixture
def columns() -> list[Column]:
    return [
        Column(name, number, TYPES[kind][0], -1, SQL_TYPES.get(name, kind), TYPES[kind][0], -1, "b",
               False, "", C if kind in ("text", "varchar", "bpchar", "name") else None)
        for number, (name, kind) in enumerate(COLUMNS.items(), 1)
    ]  # fmt: skip


def test_arguments_are_cast_as_the_server_does_in_silence(
    database: Database, postgres_major: int, columns: list[Column]
) -> None:
    listing = ", ".join(
        f"{name} {SQL_TYPES.get(name, kind)}"
        + (' COLLATE "C"' if kind in ("text", "varchar", "bpchar") else "")
        for name, kind in COLUMNS.items()
    )
    differences = []
    with database.connect() as connection:
        connection.execute(f"CREATE TABLE f (id int PRIMARY KEY, {listing})".encode())
        for number, row in enumerate(ROWS):
            connection.execute(
                f"INSERT INTO f VALUES ({', '.join(['%s'] * 10)})".encode(), (number, *row)
            )
        result = connection.execute("SELECT * FROM f ORDER BY id").pgresult
        assert result is not None
        rows = [[result.get_value(row, 1 + c) for c in range(9)] for row in range(len(ROWS))]
        for form in FORMS:
            with connection.transaction(force_rollback=True):
                connection.execute(f"CREATE PUBLICATION p FOR TABLE f WHERE ({form})".encode())
                shown = connection.execute(
                    "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel"
                ).fetchone()
                truths = connection.execute(f"SELECT {form} FROM f ORDER BY id".encode()).fetchall()
            assert shown is not None
            passes = compile_filter(shown[0], columns, major=postgres_major).bind(list(COLUMNS))
            found = [passes(row) for row in rows]
            if found != [truth is True for (truth,) in truths]:
                differences.append((form, shown[0], found, truths))

    assert differences == []
