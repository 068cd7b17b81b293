"""The manual's restrictions on row filters: the gateway refuses what the server does, in its words.

More of the same, with positions, is in `test_definitions`; here is every restriction in several
shapes, in both ways in which the gateway asks: by a publication, and by a temporary view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import psycopg
import pytest

from gateway.definitions.combine import find_problems
from gateway.definitions.parser import parse_definitions
from gateway.errors import DefinitionError
from gateway.source.catalog import read_catalog
from tests.servers import Connection, Database, DatabaseFactory, Servers

pytestmark = pytest.mark.postgres

TABLES: Final = """
    CREATE SCHEMA app;
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE DOMAIN small AS int CHECK (VALUE < 1000);
    CREATE TYPE pair AS (x int, y text);
    CREATE TYPE span AS RANGE (subtype = int);
    CREATE FUNCTION mine(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
    CREATE FUNCTION app.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
    CREATE FUNCTION has_mood(text) RETURNS mood LANGUAGE sql IMMUTABLE AS 'SELECT ''sad''::mood';
    CREATE FUNCTION several(VARIADIC int[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
    CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int);
    CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
    CREATE FUNCTION int4_is(int, text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
    CREATE OPERATOR app.= (LEFTARG = int, RIGHTARG = text, FUNCTION = int4_is);
    CREATE COLLATION own (provider = libc, locale = 'C');
    CREATE TABLE t(a int, c varchar(5), t text, b bool, f float8, d date, ts timestamp,
        z timestamptz, i interval, n int[], j jsonb, r int4range, e numeric, by bytea, net inet,
        m mood, ms mood[], s small, p pair, sp span, o text COLLATE own, os text[] COLLATE own,
        u uuid, bits varbit, PRIMARY KEY (a, c));"""

USER_DEFINED: Final = (
    "mine(1) = 1",
    "a > 1 AND mine(a) > 1",
    "CASE WHEN mine(a) = 1 THEN true ELSE false END",
    "COALESCE(mine(a), 1) = 1",
    "NULLIF(mine(a), 1) = 1",
    "GREATEST(a, mine(a)) = 1",
    "a = ANY (ARRAY[mine(a), 1])",
    "(a, mine(a)) = (1, 2)",
    "app.lower(t) = 'x'",
    "has_mood(t) IS NULL",
    "several(a, 2, 3) = 1",
    "several(VARIADIC n) = 1",
    "total(a) > 1",
    "a OPERATOR(public.===) 1",
    "a === ANY (n)",
    "a OPERATOR(app.=) t",
    "NOT (a === 1)",
    "(a === 1) IS NOT TRUE",
    "m = 'sad'::mood",
    "m IS NULL",
    "m IN ('sad', 'happy')",
    "'sad'::mood = 'happy'",
    "t::mood = 'sad'",
    "ms IS NULL",
    "m = ANY (ms)",
    "ms = '{sad}'",
    "s > 1",
    "a::small > 1",
    "a = 1::small",
    "COALESCE(s, 1) = 1",
    "p IS NULL",
    "p IS NOT NULL",
    "(p).x = 1",
    "p = ROW(1, 'x')::pair",
    "ROW(a, t)::pair = p",
    "sp @> 1",
    "'[1,2)'::span @> a",
    "sp IS NOT NULL",
    "o = 'x'",
    "o IS NULL",
    "o LIKE 'x%'",
    "t = 'x' COLLATE own",
    "t COLLATE own IS NULL",
    "lower(t COLLATE own) = 'x'",
    "'x' = ANY (os)",
    "(t COLLATE own) IN ('x', 'y')",
    "CASE o WHEN 'x' THEN true END",
)

SYSTEM_COLUMNS: Final = (
    "ctid = '(0,1)'",
    "xmin = 1",
    "xmax IS NULL",
    "cmin IS NULL",
    "cmax IS NULL",
    "tableoid = 't'::regclass",
    "t.ctid IS NOT NULL",
    "COALESCE(tableoid, 0) = 1",
)

MUTABLE: Final = (
    "random() > 0.5",
    "now() > z",
    "z > now() - interval '1 day'",
    "clock_timestamp() IS NULL",
    "CURRENT_TIMESTAMP > z",
    "CURRENT_DATE = d",
    "LOCALTIMESTAMP > ts",
    "CURRENT_USER = t",
    "SESSION_USER = t",
    "current_setting('work_mem') = t",
    "current_database() = t",
    "nextval('nosuch') = 1",
    "pg_backend_pid() = a",
    "version() = t",
    "z = d",
    "z > ts",
    "z::date = d",
    "d::timestamptz = z",
    "z + '1 day' > now()",
    "z + i > z",
    "z - i > z",
    "date_trunc('day', z) = z",
    "EXTRACT(year FROM z) = 2024",
    "date_part('year', z) = 2024",
    "to_char(d, 'YYYY') = '2024'",
    "to_date(t, 'YYYY') = d",
    "to_timestamp(t, 'YYYY') = z",
    "to_number(t, '9') = e",
    "concat(t, c) = 'x'",
    "format('%s', t) = 'x'",
    "concat_ws(',', t, c) = 'x'",
    "array_to_string(n, ',') = '1'",
    "to_jsonb(a) = j",
    "jsonb_build_object('a', a) = j",
    "jsonb_path_exists_tz(j, '$.a')",
    "row_to_json(ROW(a)) IS NULL",
    "gen_random_uuid() = u",
    "age(z) > i",
    "timezone('UTC', d::timestamp) > now()",
    "has_table_privilege('t', 'SELECT')",
    "to_tsvector(t) @@ 'x'",
    "convert_to(t, 'LATIN1') = by",
    "set_config('a.b', 'c', false) = 'c'",
    "'now'::text::timestamptz = z",
    "i * 2 = i AND now() = z",
    "(d, d) OVERLAPS (d, d)",
)

NOT_SIMPLE: Final = (
    "sum(a) > 1",
    "count(*) > 1",
    "max(a) = 1 OR a = 1",
    "GROUPING(a) = 1",
    "rank() OVER () = 1",
    "sum(a) OVER (PARTITION BY c) = 1",
    "generate_series(1, a) = 1",
    "unnest(n) = 1",
    "regexp_split_to_table(t, ',') = 'x'",
    "CASE WHEN b THEN generate_series(1, 2) = 1 END",
    "a = (SELECT 1)",
    "a IN (SELECT 1)",
    "a = ANY (SELECT 1)",
    "(a, c) = (SELECT 1, 'x')",
    "EXISTS (SELECT FROM t)",
    "a = ANY (ARRAY(SELECT 1))",
    "NOT EXISTS (SELECT 1)",
    "a::text = '1'",
    "t::int = 1",
    "a::varchar LIKE '1%'",
    "f::text = '1'",
    "n::text = '{1}'",
    "n::text[] = '{1}'",
    "n::bigint[] = '{1}'",
    "ARRAY[a]::text[] = '{1}'",
    "a || t = '1x'",
    "make_interval(days => a) = i",
    "n[1] = 1",
    "n[1:2] = '{1}'",
    "j['a'] = '1'",
    "t",
    "t.*",
    "t.* IS NULL",
    "t.* IS NOT NULL",
    "a",
    "a + 1",
    "1",
    "a = $1",
    "nosuch = 1",
    "u.a = 1",
    "nosuch(a) = 1",
    "a + t = 1",
    "a = 'x'",
    "t = 1",
    "a AND b",
    "NOT a",
    "a IS TRUE",
    "CASE WHEN a THEN true END",
    "(a, c) = (1, 2, 3)",
    "a LIKE 'x'",
    "t COLLATE nosuch = 'x'",
    'a COLLATE "C" = 1',
    "a::nosuch = 1",
    't COLLATE "C" = c COLLATE "POSIX"',
    "a BETWEEN 1 AND 'x'",
    "GREATEST(a, t) = 1",
    "NULLIF(a, t) = 1",
    "COALESCE(a, t) = 1",
    "a = DEFAULT",
    "a = ALL (1)",
    "ARRAY[1, 'x'] = n",
    "ARRAY[] = n",
    "a::numeric(2000) = 1",
    "c::varchar(0) = 'x'",
    "'2024-13-01'::date = d",
    "'{1'::int[] = n",
    "'[2,1]'::int4range = r",
    "'{'::jsonb = j",
)

ACCEPTED: Final = (
    "a > 5 AND c = 'NSW'",
    "NULLIF(a, 1) IS NULL AND NULLIF(t, c) = 'x'",
    "NULLIF(a, e) = 1",
    "COALESCE(a, 1) = 1",
    "COALESCE(a, e, f) = 1",
    "GREATEST(a, 1) = LEAST(e, f)",
    "(a, c) = (1, 'x')",
    "(a, c) <> (1, 'x')",
    "(a, c, t) < (1, 'x', 'y')",
    "(a, c) >= (e, t)",
    "ROW(a, c) IS NULL",
    "ROW(a, ROW(c, t)) IS NOT NULL",
    "(a, c) IS DISTINCT FROM (1, 'x')",
    "(a, c) IN ((1, 'x'), (2, 'y'))",
    "(a, c) NOT IN ((1, 'x'), (2, t))",
    "ROW(a) = ROW(1)",
    "(ts, ts) OVERLAPS (ts, i)",
    "CASE WHEN a > 1 THEN b ELSE NOT b END",
    "CASE a WHEN 1 THEN 'x' WHEN 2 THEN t END = c",
    "CASE WHEN b THEN a END > 1",
    "CASE c WHEN 'x' THEN NULL ELSE true END",
    "a IN (1, 2, 3) AND c NOT IN ('x', t)",
    "a = ANY (n) AND a <> ALL ('{1,2}')",
    "n @> ARRAY[a] AND n && '{1}' AND cardinality(n) > 1",
    "ARRAY[a, 1] || n = '{1}'",
    "array_length(n, 1) = 1 AND array_position(n, a) = 1",
    "j -> 'a' = '1' AND j ->> 'a' = 'x' AND j @> '{}' AND j ? 'a'",
    "j #>> '{a,b}' = 'x' AND j @? '$.a' AND j @@ '$.a > 1'",
    "r @> a AND r && '[1,2]' AND lower(r) = 1 AND NOT isempty(r)",
    "t LIKE 'a%' AND t NOT LIKE '_b' ESCAPE '!' AND t ILIKE 'x'",
    "t SIMILAR TO 'a(b|c)%' AND t NOT SIMILAR TO 'x' ESCAPE '!'",
    "t ~ '^a' AND t !~* 'b' AND regexp_replace(t, 'a', 'b') = 'c'",
    "lower(t) = 'x' AND length(t) > 1 AND substr(t, 1, 2) = 'ab'",
    "SUBSTRING(t FROM 1 FOR 2) = 'x' AND SUBSTRING(t FROM 'a.b') = 'x'",
    "SUBSTRING(t SIMILAR 'a#\"b#\"c' ESCAPE '#') = 'b'",
    "POSITION('a' IN t) = 1 AND OVERLAY(t PLACING 'x' FROM 1) = 'x'",
    "TRIM(BOTH 'x' FROM t) = '' AND TRIM(t) = 'a' AND TRIM(LEADING FROM t) = ''",
    "EXTRACT(year FROM d) = 2024 AND date_trunc('month', ts) = ts",
    "d + 1 > d AND d - d > 1 AND ts + i > ts AND d + i > ts",
    "ts AT TIME ZONE 'UTC' = z AND z AT TIME ZONE INTERVAL '1 hour' = ts",
    "i > '1 day' AND i * 2 = i AND justify_hours(i) = i",
    "e::numeric(5,1) = 1.5 AND round(e, 2) = 1 AND e % 2 = 0",
    "a::bigint * 2 > 1 AND f::int = a AND a::bool",
    "net << '10.0.0.0/8' AND host(net) = 'x' AND family(net) = 4",
    "by || '\\x00' = by AND sha256(by) = by AND get_byte(by, 0) = 1",
    "bits & B'101' = bits AND length(bits) = 3",
    "num_nulls(a, c, t) = 0 AND num_nonnulls(VARIADIC n) = 1",
    "make_interval(0, a) = i AND make_date(a, 1, 1) = d",
    "NULL",
    "'yes'",
    "t.t = 'x'",
    "t ~ '('",
    "a BETWEEN SYMMETRIC 5 AND 1 AND a NOT BETWEEN 1 AND e",
    "(a > 1) IS NOT UNKNOWN AND b IS NOT FALSE AND (a IS NULL) = b",
    "a IS DISTINCT FROM 1 AND t IS NOT DISTINCT FROM c",
    't COLLATE "C" < \'x\' AND t COLLATE "POSIX" > c',
    "c::char(3) = 'x' AND c::text || 'a' = t",
    "NORMALIZE(t, NFC) = t OR t IS NFC NORMALIZED",
    "'2024-01-01 00:00'::timestamptz = z AND DATE '2024-01-01' = d",
    "true",
    "NULL::boolean",
    "b",
    "a = 1 /* a comment */ -- and another",
    "U&'d\\0061t\\+000061' = t AND E'\\n' = t AND $$x'y$$ = t",
    "a = 0x1F",
    "1 / 0 = a",
)

NOT_IN_14: Final = ("a = 0x1F", "1 / 0 = a")
"""A syntax that 14 does not have, and what 14 says at once instead of at the first row."""

ROLES: Final = ("the owner", "a role that may not create publications")

Answer = tuple[str, str | None]


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with scene(database) as connection:
        yield connection


@contextmanager
def scene(database: Database) -> Iterator[Connection]:
    """The tables, and a role that may read but not own them, gone afterwards."""
    with database.connect() as connection:
        role = role_of(connection)
        connection.execute(TABLES)
        connection.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA app TO {role}".encode())
        yield connection
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def role_of(connection: Connection) -> str:
    return f"restricted_{connection.info.backend_pid}"


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(USER_DEFINED, id="user-defined"),
        pytest.param(SYSTEM_COLUMNS, id="system columns"),
        pytest.param(MUTABLE, id="mutable"),
        pytest.param(NOT_SIMPLE, id="not simple"),
        pytest.param(ACCEPTED, id="accepted"),
    ],
)
def test_each_restriction_is_told_in_the_servers_words(
    connection: Connection, role: str, filters: Sequence[str]
) -> None:
    natively = {text: native(connection, text) for text in filters}
    if role != "the owner":
        connection.execute(f"SET ROLE {role_of(connection)}".encode())
    found = {text: ours(connection, text) for text in filters}
    assert found == natively
    accepted = [text for text, (message, _) in natively.items() if message.startswith("=> ")]
    assert set(accepted) == set(ACCEPTED if filters is ACCEPTED else ())


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(USER_DEFINED, id="user-defined"),
        pytest.param(SYSTEM_COLUMNS, id="system columns"),
        pytest.param(MUTABLE, id="mutable"),
        pytest.param(NOT_SIMPLE, id="not simple"),
        pytest.param(ACCEPTED, id="accepted"),
    ],
)
def test_14_which_has_no_row_filters_gets_the_words_of_16(
    servers: Servers, filters: Sequence[str]
) -> None:
    with ExitStack() as stack:
        old, new = (stack.enter_context(on_server(servers, major)) for major in (14, 16))
        asked = [text for text in filters if text not in NOT_IN_14]
        natively = {text: native(new, text) for text in asked}
        found = {text: ours(old, text) for text in asked}
    assert found == natively


@contextmanager
def on_server(servers: Servers, major: int) -> Iterator[Connection]:
    factory = DatabaseFactory(servers.postgres(major))
    try:
        with scene(factory()) as connection:
            yield connection
    finally:
        factory.drop_all()


PREFIX: Final = "CREATE PUBLICATION p FOR TABLE t WHERE ("


def native(connection: Connection, text: str) -> Answer:
    """The server's message and detail or hint; of an accepted filter its rendering."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"{PREFIX}{text}\n)".encode())
            connection.execute("SET LOCAL search_path = pg_catalog")
            row = connection.execute(
                "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel"
            ).fetchone()
    except psycopg.Error as error:
        return (
            error.diag.message_primary or "",
            error.diag.message_detail or error.diag.message_hint,
        )
    assert row is not None
    return "=> " + " ".join(str(row[0]).split()), None


def ours(connection: Connection, text: str) -> Answer:
    """The gateway's message and hint; of an accepted filter its rendering."""
    try:
        catalog = read_catalog(connection, parse_definitions(f"{PREFIX}{text}\n)"))
    except DefinitionError as error:
        return error.message.split("\nline ")[0], error.hint
    (relation,) = catalog.publications["p"].relations
    return "=> " + " ".join(str(relation.where).split()), None


IDENTITIES: Final = (
    ("by_index", "WHERE (b > 1)"),
    ("by_index", "WHERE (a > 1)"),
    ("by_index", "WHERE (a > 1) WITH (publish = 'insert')"),
    ("by_index", "WHERE (a > 1 OR b > 1) WITH (publish = 'update')"),
    ("by_index", "WHERE (COALESCE(c, 'x') = 'x') WITH (publish = 'delete, truncate')"),
    ("full_row", "WHERE (a > 1 AND b > 1 AND c = 'x')"),
    ("nothing", "WHERE (a > 1)"),
    ("nothing", "WHERE (a > 1) WITH (publish = 'insert, truncate')"),
    ("bare", "WHERE (true)"),
    ("keyed", "WHERE (CASE WHEN b > 1 THEN a > 1 END)"),
    ("keyed", "WHERE (a > 1 AND a < b)"),
    ("keyed", "WHERE (1 = 1)"),
    ("keyed", "WHERE ((a, c) = (1, 'x'))"),
)


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_a_column_outside_the_replica_identity_is_refused_as_natively_at_the_write(
    database: Database,
) -> None:
    with database.connect() as connection:
        connection.execute(
            """CREATE TABLE by_index(a int, b int NOT NULL UNIQUE, c text);
               ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_b_key;
               CREATE TABLE full_row(a int, b int, c text);
               ALTER TABLE full_row REPLICA IDENTITY FULL;
               CREATE TABLE nothing(a int PRIMARY KEY);
               ALTER TABLE nothing REPLICA IDENTITY NOTHING;
               CREATE TABLE bare(a int);
               CREATE TABLE keyed(a int PRIMARY KEY, b int, c text);"""
        )
        natively = {case: refused_writes(connection, *case) for case in IDENTITIES}
        found = {case: our_problems(connection, *case) for case in IDENTITIES}
    for case, lines in natively.items():
        assert [message for message, _ in found[case]] == [message for message, _ in lines], case
        for (_, hint), (_, detail) in zip(found[case], lines, strict=True):
            assert str(hint).startswith(str(detail))
    assert {len(lines) for lines in natively.values()} == {0, 1, 2}


def refused_writes(connection: Connection, table: str, rest: str) -> list[Answer]:
    """What the server says to an UPDATE and a DELETE while the publication exists."""
    faults: list[Answer] = []
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE PUBLICATION p FOR TABLE {table} {rest}".encode())
        for write in (f"UPDATE {table} SET a = a", f"DELETE FROM {table}"):
            try:
                with connection.transaction():
                    connection.execute(write.encode())
            except psycopg.Error as error:
                faults.append((error.diag.message_primary or "", error.diag.message_detail or ""))
    return faults


def our_problems(connection: Connection, table: str, rest: str) -> list[Answer]:
    """What the gateway says of the same publication; its hints begin with the server's details."""
    definitions = parse_definitions(
        f"CREATE PUBLICATION p FOR TABLE {table} {rest};"
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p"
    )
    catalog = read_catalog(connection, definitions)
    problems = find_problems(definitions, catalog, missing_identity="refuse")
    return [(p.message.split("\nline ")[0], p.hint) for p in problems]
