"""Lines of COPY come many at a time, and a COPY that goes wrong says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from gateway._speedups.loader import INTERPRETED
from gateway.source.copy.copy_out import copy_lines
from gateway.source.session.connection import connect
from gateway.source.session.session import Session
from tests.support.backends.servers import Database

pytestmark = pytest.mark.postgres


@pytest.fixture(params=["0", "1"], ids=["compiled", "interpreted"])
def session(
    database: Database, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.setenv(INTERPRETED, request.param)
    with closing(connect(database.dsn, application_name="lines")) as session:
        yield session


def _copy(query: str) -> bytes:
    return f"COPY ({query}) TO STDOUT".encode()


def test_all_lines_come_in_their_order(session: Session) -> None:
    query = "SELECT n, repeat('x', n % 100) FROM generate_series(1, 50000) n"

    found = list(copy_lines(session, _copy(query)))

    assert [line for lines in found for line in lines] == [
        b"%d\t%s\n" % (n, b"x" * (n % 100)) for n in range(1, 50_001)
    ]
    assert len(found) < 5_000


def test_a_line_may_be_larger_than_all_bounds(session: Session) -> None:
    query = "SELECT repeat('x', 5000000) FROM generate_series(1, 3)"

    found = [line for lines in copy_lines(session, _copy(query)) for line in lines]

    assert found == [b"x" * 5_000_000 + b"\n"] * 3


def test_nothing_comes_of_no_rows(session: Session) -> None:
    assert list(copy_lines(session, _copy("SELECT 1 WHERE false"))) == []


def test_what_the_server_refuses_is_told_and_the_session_goes_on(session: Session) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        list(copy_lines(session, _copy("SELECT * FROM nowhere")))

    assert list(copy_lines(session, _copy("SELECT 1"))) == [[b"1\n"]]


def test_an_error_behind_some_lines_is_told_and_the_session_goes_on(session: Session) -> None:
    query = "SELECT 1 / (n - 30000) FROM generate_series(1, 40000) n"

    with pytest.raises(psycopg.errors.DivisionByZero):
        list(copy_lines(session, _copy(query)))

    assert list(copy_lines(session, _copy("SELECT 1"))) == [[b"1\n"]]


def test_a_session_that_is_ended_in_the_middle_is_an_error_of_the_connection(
    session: Session, database: Database
) -> None:
    lines = copy_lines(session, _copy("SELECT repeat('x', 100) FROM generate_series(1, 10000000)"))
    next(lines)
    with database.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", [session.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        list(lines)


def test_a_reader_that_stops_in_the_middle_leaves_no_session_behind(session: Session) -> None:
    lines = copy_lines(session, _copy("SELECT * FROM generate_series(1, 10000000)"))
    next(lines)

    lines.close()  # type: ignore[attr-defined]

    assert session.closed


def test_whoever_waits_may_end_it_although_lines_come_all_the_time(session: Session) -> None:
    def give_up() -> None:
        raise InterruptedError

    lines = copy_lines(session, _copy("SELECT * FROM generate_series(1, 10000000)"))
    next(lines)
    session.on_wait = give_up

    with pytest.raises(InterruptedError):
        next(lines)
    assert session.closed
