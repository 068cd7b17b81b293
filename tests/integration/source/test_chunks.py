"""Chunks of real tables: every row once, whatever its key, and as the stream would have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from gateway.copy import Chunk, ChunkRequest, Key, row_of
from gateway.core.errors import FatalError
from gateway.core.lsn import parse_lsn
from gateway.source.catalog.tables import read_tables
from gateway.source.copy.chunk_reader import (
    ChunkReader,
    ChunkSource,
    ConditionError,
    TableChanged,
    TableGone,
)
from gateway.source.copy.errors import TableLocked
from gateway.source.copy.key_columns import KnownTypes, key_columns
from tests.support.backends.servers import Database
from tests.support.run.majors import alternating

pytestmark = pytest.mark.postgres
majors = alternating(__name__, 16, 18)

HOSTILE_SETTINGS = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-5",
    "bytea_output": "escape",
    "TimeZone": "Asia/Tokyo",
}
NASTY = [
    "",
    "\\",
    "\\\\",
    "\\N",
    "\\.",
    "a\tb",
    "a\nb",
    "a\r\nb",
    "\b\f\v\x01\x7f",
    "\\t",
    "\\x41\\101",
    "ends with \\",
    'it\'s "quoted" 100%',
    "日本語\\ü\t𐍈",
]


def source_of(
    database: Database, name: str, *columns: str, key: tuple[str, ...] = ()
) -> ChunkSource:
    """A table as the catalog has it now."""
    with database.connect() as connection:
        row = connection.execute("SELECT %s::regclass::oid", [name]).fetchone()
        assert row is not None
        table = read_tables(connection, [row[0]])[row[0]]
    return ChunkSource(table, columns, key)


@pytest.fixture
def reader(database: Database) -> Iterator[ChunkReader]:
    with ChunkReader(database.dsn) as reader:
        yield reader


def chunks(reader: ChunkReader, source: ChunkSource, limit: int) -> Iterator[Chunk]:
    after: Key | None = None
    while True:
        chunk = reader.read(source, ChunkRequest(True, after, ()), limit)
        yield chunk
        if chunk.end:
            return
        after = chunk.last


def bordered(reader: ChunkReader, source: ChunkSource, limit: int) -> Iterator[Chunk]:
    """Ranges of which the end is asked for first, read from the last one to the first."""
    requests = [reader.border(source, ChunkRequest(True, None, ()), limit)]
    while (last := requests[-1].last) is not None:
        requests.append(reader.border(source, ChunkRequest(True, last, ()), limit))
    return reversed([reader.read(source, request, limit) for request in reversed(requests)])


def read(chunk: Chunk) -> list[list[Any]]:
    return [list(row_of(copied)) for copied in chunk.rows]


def rows(reader: ChunkReader, source: ChunkSource, limit: int = 2) -> list[list[Any]]:
    return [row for chunk in chunks(reader, source, limit) for row in read(chunk)]


@majors
def test_the_text_of_a_value_is_that_of_the_stream_whatever_the_role_has_set(
    database: Database,
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (d date, z timestamptz, i interval, f float8, b bytea)")
        for setting, value in HOSTILE_SETTINGS.items():
            writer.execute(f"ALTER DATABASE \"{database.name}\" SET {setting} = '{value}'")
        writer.execute(
            "INSERT INTO t SELECT '2024-02-03'::date, '2024-02-03 04:05:06.7+02'::timestamptz,"
            " '1 day 02:03:04'::interval, 0.1::float8 + 0.2::float8, '\\x00ff'::bytea"
        )
    with ChunkReader(database.dsn) as reader:
        assert rows(reader, source_of(database, "t", "d", "z", "i", "f", "b")) == [
            [
                b"2024-02-03",
                b"2024-02-03 02:05:06.7+00",
                b"1 day 02:03:04",
                b"0.30000000000000004",
                b"\\x00ff",
            ]
        ]


@majors
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_every_string_comes_back_and_can_be_a_key(
    database: Database, reader: ChunkReader, limit: int
) -> None:
    with database.connect() as writer:
        writer.execute('CREATE TABLE "nasty ""t" (id int, "a ""b" text PRIMARY KEY, c text)')
        for number, text in enumerate(NASTY):
            writer.execute('INSERT INTO "nasty ""t" VALUES (%s, %s, NULL)', [number, text])
    source = source_of(database, '"nasty ""t"', 'a "b', "id", "c", key=('a "b',))

    found = rows(reader, source, limit)

    expected = [[text.encode(), str(n).encode(), None] for n, text in enumerate(NASTY)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    again = tuple((text.encode(),) for text in NASTY)
    chunk = reader.read(source, ChunkRequest(False, None, again), limit)
    assert sorted(read(chunk), key=repr) == sorted(expected, key=repr)


KEYS = {
    "two columns, the index in the other order": (
        "a int, b text, UNIQUE (b, a)",
        "SELECT i % 7, 'x' || i % 11 FROM generate_series(0, 76) i",
    ),
    "descending, and under another collation": (
        "a numeric, b text",
        "SELECT i / 3.0, chr(65 + i % 58) FROM generate_series(0, 76) i",
    ),
    "types that Python has no order for": (
        "a inet, b int4range",
        "SELECT '10.0.0.0'::inet + i, int4range(i, i + i % 5 + 1) FROM generate_series(0, 76) i",
    ),
    "floats with their odd values": (
        "a float8, b int",
        "SELECT v, i FROM unnest('{NaN,-0,1e30,Infinity,-Infinity,1e-310,0.1}'::float8[]) v,"
        " generate_series(0, 10) i",
    ),
    "an enum and a domain": (
        "a mood, b word",
        "SELECT (ARRAY['sad', 'ok', 'happy'])[i % 3 + 1]::mood, 'w' || i"
        " FROM generate_series(0, 76) i",
    ),
}


@majors
@pytest.mark.parametrize("case", KEYS, ids=list(KEYS))
def test_ranges_of_any_key_meet_without_gap_and_overlap(
    database: Database, reader: ChunkReader, case: str
) -> None:
    columns, query = KEYS[case]
    with database.connect() as writer:
        writer.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        writer.execute("CREATE DOMAIN word AS text")
        writer.execute(f"CREATE TABLE t ({columns})")
        writer.execute("ALTER TABLE t ALTER a SET NOT NULL, ALTER b SET NOT NULL")
        writer.execute("CREATE UNIQUE INDEX k ON t (a DESC, b)")
        if "collation" in case:
            writer.execute('DROP INDEX k; CREATE UNIQUE INDEX k ON t (a DESC, b COLLATE "C")')
        writer.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX k")
        writer.execute(f"INSERT INTO t {query}")
        expected = writer.execute("SELECT format('%s', a), format('%s', b) FROM t").fetchall()
    source = source_of(database, "t", "a", "b", key=("a", "b"))

    found = rows(reader, source, 10)

    assert len(found) == 77
    assert sorted(tuple((v or b"").decode() for v in row) for row in found) == sorted(expected)
    keys = tuple((a or b"", b or b"") for a, b in found)
    apart = list(bordered(reader, source, 10))
    assert [row for chunk in apart for row in read(chunk)] == found
    assert [chunk.size for chunk in apart] == [10] * 7 + [7, 0]
    assert [chunk.end for chunk in apart] == [False] * 8 + [True]
    chunk = reader.read(source, ChunkRequest(False, None, keys[::2]), 10)
    assert sorted(map(tuple, read(chunk))) == sorted(keys[::2])


def test_a_chunk_says_what_it_sees_and_where_the_wal_was_afterwards(
    database: Database, reader: ChunkReader
) -> None:
    source_table = "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)"
    with database.connect() as writer, database.connect() as late:
        writer.execute(source_table)
        source = source_of(database, "t", "a", key=("a",))
        with late.transaction():
            late.execute("INSERT INTO t VALUES (2)")
            open_xid = _xid(late)
            before = _wal_end(writer)
            chunk = reader.read(source, ChunkRequest(True, None, ()), 10)
        assert read(chunk) == [[b"1"]]
        assert not chunk.snapshot.sees(open_xid)
        assert before <= chunk.insert_lsn <= _wal_end(writer)
        chunk = reader.read(source, ChunkRequest(True, (b"1",), ()), 10)

    assert read(chunk) == [[b"2"]]
    assert chunk.snapshot.sees(open_xid)


def _xid(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert row is not None
    return int(row[0]) & 0xFFFFFFFF


def _wal_end(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def test_a_table_without_a_key_is_one_chunk_that_can_be_read_twice(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a text)")
        writer.execute("INSERT INTO t VALUES (''), (NULL), ('\\.'), (E'a\\nb')")
    (chunk,) = chunks(reader, source_of(database, "t", "a"), 1)

    assert (chunk.last, chunk.end) == (None, True)
    for _ in range(2):
        assert read(chunk) == [[b""], [None], [b"\\."], [b"a\nb"]]
    assert rows(reader, source_of(database, "t")) == [[], [], [], []]


def test_a_partitioned_table_is_read_whole_and_a_parent_table_alone(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute(
            "CREATE TABLE r (a int PRIMARY KEY) PARTITION BY HASH (a);"
            "CREATE TABLE r0 PARTITION OF r FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
            "CREATE TABLE r1 PARTITION OF r FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
            "INSERT INTO r SELECT generate_series(1, 9);"
            "CREATE TABLE parent (a int PRIMARY KEY); CREATE TABLE child () INHERITS (parent);"
            "INSERT INTO parent VALUES (3); INSERT INTO child VALUES (4)"
        )
    root = rows(reader, source_of(database, "r", "a", key=("a",)))

    assert root == [[b"%d" % number] for number in range(1, 10)]
    assert rows(reader, source_of(database, "parent", "a", key=("a",))) == [[b"3"]]


def test_a_table_that_is_no_longer_as_it_was_is_not_read(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        source = source_of(database, "t", "a", "b", key=("a",))
        assert rows(reader, source) == []
        writer.execute("ALTER TABLE t ADD COLUMN c int")
        with pytest.raises(TableChanged, match="columns are not those of the plan"):
            rows(reader, source)
        source = source_of(database, "t", "a", "b", key=("a",))
        assert rows(reader, source) == []
        writer.execute("DROP TABLE t")
        with pytest.raises(TableGone, match="not there any more"):
            rows(reader, source)


def test_a_locked_table_is_tried_again_later(database: Database) -> None:
    with (
        ChunkReader(database.dsn, lock_timeout_s=0.1) as reader,
        database.connect() as writer,
        database.connect() as locker,
    ):
        writer.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        source = source_of(database, "t", "a", key=("a",))
        with locker.transaction():
            locker.execute("LOCK TABLE t")
            with pytest.raises(TableLocked, match="lock"):
                rows(reader, source)
            with pytest.raises(TableLocked, match="lock"):
                reader.narrows(replace(source, narrow=("(a < 0)",)))
        assert rows(reader, source) == [[b"1"]]


def test_row_security_is_refused_rather_than_obeyed(database: Database) -> None:
    role = f"reader_{database.name}"
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY)")
        writer.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        writer.execute(f"CREATE ROLE {role} LOGIN")
        writer.execute(f"GRANT SELECT ON t TO {role}")
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
    try:
        with (
            ChunkReader(dsn) as reader,
            pytest.raises(FatalError, match="row security hides rows"),
        ):
            rows(reader, source_of(database, "t", "a", key=("a",)))
    finally:
        with database.connect() as writer:
            writer.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


NARROW = ("((b % 3) = 0)", "((a = 'x2'::text) AND ((10 / (b - 5)) > 1))")


@majors
def test_a_narrowed_range_has_the_rows_that_anybody_wants_and_counts_the_others(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a text, b int, c text, PRIMARY KEY (b, a))")
        writer.execute(
            "INSERT INTO t SELECT 'x' || i % 4, i / 2 + 6, E'\\t\\\\' FROM generate_series(0, 99) i"
        )
        wanted = writer.execute(
            f"SELECT a, b::text AS key FROM t WHERE {' OR '.join(NARROW)} ORDER BY b, a"
        ).fetchall()
    source = source_of(database, "t", "a", "b", "c", key=("a", "b"))
    source = replace(source, narrow=NARROW)

    found = list(chunks(reader, source, 7))

    assert [chunk.size + chunk.skipped for chunk in found] == [7] * 14 + [2]
    assert [chunk.end for chunk in found] == [False] * 14 + [True]
    keys = [tuple(row[:2]) for chunk in found for row in read(chunk)]
    assert keys == [(a.encode(), b.encode()) for a, b in wanted]
    assert all(chunk.size == len(read(chunk)) for chunk in found)
    apart = list(bordered(reader, source, 7))
    assert [row for chunk in apart for row in read(chunk)] == [r for c in found for r in read(c)]
    assert [chunk.size + chunk.skipped for chunk in apart] == [7] * 14 + [2, 0]


def test_rows_that_are_asked_for_by_key_come_also_where_nobody_wants_them(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)")
    source = replace(source_of(database, "t", "a", key=("a",)), narrow=("(a > 2)",))

    chunk = reader.read(source, ChunkRequest(True, (b"1",), ((b"1",),)), 10)

    assert (read(chunk), chunk.size, chunk.skipped) == ([[b"3"], [b"1"]], 1, 1)


def test_a_filter_that_raises_in_its_range_is_told_from_other_errors(
    database: Database, reader: ChunkReader
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (0)")
    source = replace(source_of(database, "t", "a", key=("a",)), narrow=("((10 / a) > 1)",))

    with pytest.raises(ConditionError, match="division by zero"):
        reader.read(source, ChunkRequest(True, None, ()), 10)

    assert read(reader.read(source, ChunkRequest(True, (b"0",), ()), 10)) == [[b"1"], [b"2"]]


@pytest.mark.parametrize(
    ("narrow", "worth"),
    [
        (("(a < 10)",), True),
        (("(a < 10)", "(a > 90)"), True),
        (("(a < 10)", "(a > 20)"), False),
        (("((1 / 0) > a)",), False),
    ],
    ids=lambda value: str(value),
)
def test_a_read_is_narrowed_where_that_leaves_out_enough(
    database: Database, reader: ChunkReader, narrow: tuple[str, ...], worth: bool
) -> None:
    with database.connect() as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY)")
        writer.execute("INSERT INTO t SELECT generate_series(1, 100); ANALYZE t")
    source = source_of(database, "t", "a", key=("a",))

    assert reader.narrows(replace(source, narrow=narrow)) is worth
    assert reader.snapshot().xmax > 0


REVERSED = """
CREATE TYPE mood AS ENUM ('a', 'b', 'c', 'd', 'e', 'f', 'g');
CREATE FUNCTION cmp(mood, mood) RETURNS int LANGUAGE sql IMMUTABLE AS
    'SELECT pg_catalog.enum_cmp($2, $1)';
{operators}
CREATE OPERATOR CLASS reversed DEFAULT FOR TYPE mood USING btree AS
    OPERATOR 1 public.<, OPERATOR 2 public.<=, OPERATOR 3 public.=, OPERATOR 4 public.>=,
    OPERATOR 5 public.>, FUNCTION 1 cmp(mood, mood);
CREATE TABLE t (m mood, n int, PRIMARY KEY (m, n));
INSERT INTO t SELECT m, n FROM unnest(enum_range(NULL::mood)) AS m, generate_series(1, 2) AS n;
"""
OPERATOR = """
CREATE FUNCTION is{n}(mood, mood) RETURNS bool LANGUAGE sql IMMUTABLE AS
    'SELECT pg_catalog.enum_cmp($2, $1) {sign} 0';
CREATE OPERATOR public.{sign} (LEFTARG = mood, RIGHTARG = mood, FUNCTION = is{n});
"""


def test_a_key_is_compared_by_the_operators_by_which_it_is_sorted(
    database: Database, reader: ChunkReader
) -> None:
    signs = enumerate(("<", "<=", "=", ">=", ">"))
    operators = "".join(OPERATOR.format(n=n, sign=sign) for n, sign in signs)
    with database.connect() as connection:
        connection.execute(REVERSED.format(operators=operators).encode())
    source = source_of(database, "t", "m", "n", key=("m", "n"))
    wanted = [[m, n] for m in (b"g", b"f", b"e", b"d", b"c", b"b", b"a") for n in (b"1", b"2")]

    assert rows(reader, source, limit=3) == wanted
    assert [row for chunk in bordered(reader, source, 3) for row in read(chunk)] == wanted
    again = reader.read(source, ChunkRequest(False, None, ((b"c", b"2"), (b"a", b"9"))), 3)
    assert read(again) == [[b"c", b"2"]]


def test_types_that_nobody_alters_are_asked_for_once(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            b"CREATE DOMAIN code AS text; "
            b"CREATE TABLE t (c code, n numeric(5, 2), PRIMARY KEY (n, c)); "
            b"CREATE TABLE u (n numeric(5, 2) PRIMARY KEY, m numeric)"
        )
        key = ("c", "n")
        known: KnownTypes = {}
        table = source_of(database, "t", *key, key=key).table
        found = key_columns(connection, table, key, known)
        # Owners alter their domains.
        assert [(oid, literal.name) for (oid, _), (literal, _) in known.items()] == [
            (1700, "numeric(5,2)")
        ]
        assert key_columns(connection, table, key, known) == key_columns(connection, table, key)
        assert [(each.name, each.type_name) for each in found] == [
            ("n", "numeric(5,2)"),
            ("c", "text"),
        ]
        other = source_of(database, "u", "n", "m", key=("n",)).table
        assert key_columns(connection, other, ("n",), known) == key_columns(
            connection, other, ("n",)
        )
