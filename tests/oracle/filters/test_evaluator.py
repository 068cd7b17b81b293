"""Row filters that a server evaluates in batches: flags, and errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.descriptors import wait_readable
from gateway.core.errors import ConfigError, TransientError
from gateway.rowfilter import Answer, AskedColumn, Question
from gateway.source.filters.evaluator import ServerEvaluator
from tests.support.backends.servers import Database, DatabaseFactory, Servers
from tests.support.backends.standby import standby_of
from tests.support.run.waiting import within

pytestmark = pytest.mark.postgres

INT4, TEXT, BPCHAR, BIT, INTERVAL = 23, 25, 1042, 1560, 1186
"""OIDs of types, from pg_type.dat."""
ALIVE_S = 60
"""A server that is not heard of for so long has been lost by the test."""


@pytest.fixture
def evaluator(database: Database) -> Iterator[ServerEvaluator]:
    evaluator = ServerEvaluator(database.dsn, timeout_s=30, source_dsn=database.dsn)
    yield evaluator
    evaluator.close()


def columns(*found: tuple[str, int]) -> tuple[AskedColumn, ...]:
    return tuple(AskedColumn(name, oid, None) for name, oid in found)


def ask(
    evaluator: ServerEvaluator, question: Question, rows: Sequence[Sequence[bytes | None]]
) -> Answer:
    evaluator.ask(question, rows)
    until = time.monotonic() + ALIVE_S
    while (answer := evaluator.collect()) is None:
        assert time.monotonic() < until
        # As the gateway's loop does: what a busy server has not taken yet is sent on in a turn.
        wait_readable([evaluator.fileno()], 0.1)
    assert not evaluator.busy
    return answer


def raised(answer: Answer) -> dict[tuple[int, int], tuple[str, str | None]]:
    return {at: (error.message, error.sqlstate) for at, error in answer.errors.items()}


def test_each_row_and_filter_has_one_flag(evaluator: ServerEvaluator) -> None:
    question = Question(
        columns(("id", INT4), ("a b", TEXT)),
        ("(id > 1)", "(\"a b\" ~ '\\d'::text)", "((id > 1) AND (\"a b\" ~~* 'X%'::text))"),
    )
    rows = [(b"1", b"x"), (b"2", b"X1"), (b"3", None), (None, b"7")]

    assert ask(evaluator, question, rows) == Answer(b"fffttttffftf", {})
    assert ask(evaluator, question, rows[1:2]) == Answer(b"ttt", {})


def test_values_are_of_their_type_without_its_modifier(evaluator: ServerEvaluator) -> None:
    question = Question(
        columns(("bits", BIT), ("padded", BPCHAR), ("span", INTERVAL)),
        (
            "(length(bits) = 3)",
            "(octet_length(padded) = 4)",
            "(span = '1 day 02:03:04'::interval)",
        ),
    )

    answer = ask(evaluator, question, [(b"101", b"ab  ", b"1 day 02:03:04")])

    assert answer == Answer(b"ttt", {})


def test_a_collation_is_that_of_the_column(evaluator: ServerEvaluator) -> None:
    byte_order = (AskedColumn("t", TEXT, 'pg_catalog."C"'), AskedColumn("n", INT4, None))
    question = Question(byte_order, ("(t < 'a'::text)", "(t < ('a'::text COLLATE \"POSIX\"))"))

    assert ask(evaluator, question, [(b"B", None)]).flags == b"tt"


def test_a_row_that_raises_does_not_touch_the_others(evaluator: ServerEvaluator) -> None:
    question = Question(
        columns(("a", INT4), ("n", TEXT)), ("((100 / a) > 5)", "(a > 10)", "((n)::numeric > 1)")
    )
    rows: list[tuple[bytes | None, bytes | None]] = [(b"%d" % a, b"1") for a in range(1, 1001)]
    rows[700] = (b"0", b"2")

    answer = ask(evaluator, question, rows)

    assert raised(answer) == {(700, 0): ("division by zero", "22012")}
    assert answer.flags[2100:2103] == b"!ft"
    flags = answer.flags.replace(b"!", b"f")
    expected = [b"%c%c%c" % (b"ft"[100 // max(a, 1) > 5], b"ft"[a > 10], b"ft"[n == b"2"])
                for a, n in ((int(a or 0), n) for a, n in rows)]  # fmt: skip
    expected[700] = b"fft"
    assert flags == b"".join(expected)


def test_every_row_may_raise(evaluator: ServerEvaluator) -> None:
    question = Question(columns(("a", INT4)), ("((1 / a) = 1)",))

    answer = ask(evaluator, question, [(b"0",), (b"0",), (b"0",)])

    assert answer.flags == b"!!!"
    assert set(raised(answer)) == {(0, 0), (1, 0), (2, 0)}


def test_a_constant_part_that_fails_does_so_for_every_row(evaluator: ServerEvaluator) -> None:
    question = Question(
        columns(("a", INT4)), ("(a > 1)", "(((1 / 0) = 1) OR (a > 1))", "(a > 2)", "((1/0) = 2)")
    )

    answer = ask(evaluator, question, [(b"1",), (b"2",), (b"3",)])

    assert answer.flags == b"f!f!t!f!t!t!"
    assert set(raised(answer).values()) == {("division by zero", "22012")}
    only = ask(evaluator, Question(columns(("a", INT4)), ("((1 / 0) = 1)",)), [(b"1",), (b"2",)])
    assert only.flags == b"!!"
    assert set(raised(only)) == {(0, 0), (1, 0)}


def test_a_text_that_is_too_long_for_a_function_raises_alone(
    evaluator: ServerEvaluator,
) -> None:
    # str_tolower() refuses texts of 512 MiB with "out of memory", however much there is.
    long = b"x" * 2**20
    question = Question(
        columns(("t", TEXT), ("a", INT4)), ("(repeat(t, a) ~~* 'xx'::text)", "(a > 2)")
    )

    answer = ask(evaluator, question, [(b"x", b"2"), (long, b"512"), (b"x", b"3")])

    assert answer.flags == b"tf!tft"
    assert raised(answer) == {(1, 0): ("out of memory", "53200")}
    constant = f"(repeat(repeat('{'x' * 1024}'::text, 1024), 512) ~~* 'xx'::text)"
    only = ask(evaluator, Question(columns(("a", INT4)), (constant,)), [(b"1",)])
    assert only.flags == b"!"


@pytest.mark.parametrize("field", ["DETAIL", "HINT"])
def test_a_server_short_of_memory_or_locks_may_pass(
    evaluator: ServerEvaluator, database: Database, field: str
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE FUNCTION shortage(a int4) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE 'out of memory' USING ERRCODE = '53200', {field} = 'as the server has it';"
            " END $$".encode()
        )
    question = Question(columns(("a", INT4)), ("public.shortage(a)",))

    with pytest.raises(TransientError, match="out of memory"):
        ask(evaluator, question, [(b"1",)])


def test_errors_come_in_the_order_in_which_a_filter_is_written(evaluator: ServerEvaluator) -> None:
    # The planner would put the cheap comparison first, were it a WHERE clause.
    question = Question(
        columns(("a", INT4), ("t", TEXT)),
        ("((t ~ (t || '('::text)) AND (a > 1))", "((a > 1) AND (t ~ (t || '('::text)))"),
    )

    answer = ask(evaluator, question, [(b"1", b"x")])

    assert answer.flags == b"!f"
    assert [sqlstate for _, sqlstate in raised(answer).values()] == ["2201B"]


def test_a_lost_connection_may_pass(evaluator: ServerEvaluator, database: Database) -> None:
    question = Question(columns(("a", INT4)), ("(a > 1)",))
    assert ask(evaluator, question, [(b"2",)]).flags == b"t"
    with database.connect() as connection:
        kill_evaluator(connection)
        with pytest.raises(TransientError, match="evaluating row filters"):
            ask(evaluator, question, [(b"2",)])


def kill_evaluator(connection: psycopg.Connection[Any]) -> None:
    """End the evaluator's session, and return when it has ended."""
    killed = connection.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE application_name = 'pgsluice filters' AND datname = current_database()"
    ).fetchall()
    assert killed == [(True,)]


def test_a_filter_that_takes_too_long_fails_and_holds_up_no_other(database: Database) -> None:
    evaluator = ServerEvaluator(database.dsn, timeout_s=2, source_dsn=database.dsn)
    slow = "(CASE WHEN (a = 'slow'::text) THEN (pg_sleep(20) IS NULL) ELSE true END)"
    question = Question(columns(("a", TEXT)), ("(a <> 'b'::text)", slow))
    try:
        answer = ask(evaluator, question, [(b"a",), (b"slow",), (b"b",), (b"slow",)])
        assert answer.flags == b"ttt!f!t!"  # those behind the first are not asked any more
        assert {place for _, place in answer.errors} == {1}
        assert "longer than 2 s" in str(answer.errors[1, 1])

        with within(10, "200 answers"):  # 200 s, if it were asked
            answer = ask(evaluator, question, [(b"slow",), (b"b",)] * 100)
        assert answer.flags == b"t!f!" * 100
    finally:
        evaluator.close()


def test_a_filter_that_the_server_cannot_take_fails_for_every_row(database: Database) -> None:
    evaluator = ServerEvaluator(database.dsn, timeout_s=30, source_dsn=database.dsn)
    deep = "a"
    for _ in range(9_000):
        deep = f"({deep} || 'x'::text)"
    question = Question(columns(("a", TEXT)), ("(a = 'b'::text)", f"({deep} = 'y'::text)"))
    try:
        answer = ask(evaluator, question, [(b"a",), (b"b",)])
    finally:
        evaluator.close()
    assert answer.flags == b"f!t!"


def test_a_large_batch_goes_over_while_nobody_reads(evaluator: ServerEvaluator) -> None:
    question = Question(columns(("t", TEXT)), ("(length(t) = 1000000)",))

    answer = ask(evaluator, question, [(b"x" * 1_000_000,)] * 40)

    assert answer.flags == b"t" * 40


@pytest.mark.parametrize("postgres_major", [16], indirect=True)
def test_a_server_of_another_version_is_refused(database: Database, servers: Servers) -> None:
    other = servers.postgres(18).dsn()
    evaluator = ServerEvaluator(other, timeout_s=30, source_dsn=database.dsn)

    with pytest.raises(ConfigError, match="is PostgreSQL 18, the source is 16"):
        evaluator.open()


def test_a_server_with_another_locale_is_refused(database: Database) -> None:
    name = f"{database.name}_other"
    with database.connect() as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' ENCODING 'UTF8'"
            if default_locale(connection) != "C"
            else f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C.UTF-8' ENCODING 'UTF8'"
        )
        try:
            other = database.server.dsn(name)
            evaluator = ServerEvaluator(other, timeout_s=30, source_dsn=database.dsn)
            with pytest.raises(ConfigError, match="another default locale"):
                evaluator.open()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def default_locale(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(
        "SELECT datcollate FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return str(row[0])


OTHER_LIBRARIES = {
    # As a server says that runs on another C library, or with other time zone data.
    "collation": "CREATE OR REPLACE FUNCTION pg_catalog.pg_collation_actual_version(oid)"
    " RETURNS text LANGUAGE sql AS $$SELECT '0.1'$$",
    "time zone": "CREATE OR REPLACE FUNCTION pg_catalog.timezone(text, timestamptz)"
    " RETURNS timestamp LANGUAGE sql IMMUTABLE AS $$SELECT 'epoch'::timestamp$$",
}


@pytest.mark.parametrize("what", OTHER_LIBRARIES)
def test_a_server_with_other_data_is_refused(
    database: Database, make_database: DatabaseFactory, what: str
) -> None:
    other = make_database()
    with other.connect() as connection:
        connection.execute(OTHER_LIBRARIES[what].encode())
    evaluator = ServerEvaluator(other.dsn, timeout_s=30, source_dsn=database.dsn)

    with pytest.raises(ConfigError, match=f"of the source's {what}s in another version") as refused:
        evaluator.open()
    assert refused.value.key == "filters.dsn"


def test_another_database_of_the_same_server_is_as_good(database: Database) -> None:
    evaluator = ServerEvaluator(database.server.dsn(), timeout_s=30, source_dsn=database.dsn)
    try:
        assert ask(evaluator, Question(columns(("a", INT4)), ("(a > 1)",)), [(b"2",)]).flags == b"t"
    finally:
        evaluator.close()


def test_a_standby_of_the_source_answers() -> None:
    with EmbeddedPostgres(18) as source, standby_of(source) as standby:
        evaluator = ServerEvaluator(standby.dsn(), timeout_s=30, source_dsn=source.dsn())
        with closing(evaluator):
            question = Question(columns(("t", TEXT)), ("(t ~ '\\d'::text)",))

            assert ask(evaluator, question, [(b"1",), (b"x",)]).flags == b"tf"


def test_a_role_needs_no_right_beyond_what_streaming_needs(database: Database) -> None:
    role = f"streams_{database.name}"
    with database.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        connection.execute(f"REVOKE ALL ON DATABASE {database.name} FROM PUBLIC".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {database.name} TO {role}".encode())
        connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
    try:
        with closing(ServerEvaluator(dsn, timeout_s=30, source_dsn=dsn)) as evaluator:
            question = Question(columns(("t", TEXT)), ("(t ~ '\\d'::text)",))

            assert ask(evaluator, question, [(b"1",), (b"x",)]).flags == b"tf"
    finally:
        with database.connect() as connection:
            connection.execute(f"REVOKE ALL ON DATABASE {database.name} FROM {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())
