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

from gateway.core.errors import AccessError, DefinitionError, FilterError, GatewayError
from gateway.definitions.combine import find_problems
from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog.catalog import read_catalog
from tests.support.backends.servers import Connection, Database, DatabaseFactory, Servers
from tests.support.filters.restricted import (
    ACCEPTED,
    MUTABLE,
    NOT_SIMPLE,
    SYSTEM_COLUMNS,
    USER_DEFINED,
)
from tests.support.run.majors import EVALUATED_ON

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


@pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True)
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


@pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True)
def test_a_missing_right_is_told_for_what_it_is(connection: Connection) -> None:
    role = role_of(connection)
    connection.execute("CREATE SCHEMA closed")
    found = []
    for right in ("nothing", "TEMPORARY"):
        if right != "nothing":
            database = connection.info.dbname
            connection.execute(f"REVOKE {right} ON DATABASE {database} FROM PUBLIC".encode())
        connection.execute(f"SET ROLE {role}".encode())
        found += [denied(connection, text) for text in ("closed.f(a) = 1", "a > 1")]
        connection.execute("RESET ROLE")

    closed, accepted, *without_temporary = found
    assert closed is not None and accepted is None
    assert isinstance(closed, FilterError)
    assert "permission denied for schema closed" in closed.message
    assert closed.position == len(PREFIX)
    assert "TEMPORARY" not in str(closed)
    for error in without_temporary:
        assert isinstance(error, AccessError)
        assert error.hint is not None and "grant TEMPORARY on the database" in error.hint


def test_a_type_that_a_role_may_not_use_is_no_missing_right_on_the_database(
    servers: Servers,
) -> None:
    with on_server(servers, 14) as connection:
        role = role_of(connection)
        grant = f"REVOKE USAGE ON TYPE mood FROM PUBLIC; GRANT SELECT ON t TO {role}"
        connection.execute(grant.encode())
        connection.execute(f"SET ROLE {role}".encode())
        error = denied(connection, "a > 1")

    assert isinstance(error, FilterError)
    assert "permission denied for type mood" in error.message


def denied(connection: Connection, text: str) -> GatewayError | None:
    """The gateway's error for a filter; None if it is accepted."""
    try:
        read_catalog(connection, parse_definitions(f"{PREFIX}{text}\n)"))
    except GatewayError as error:
        return error
    return None


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


@pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True)
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
