"""The edge to PostgreSQL against real servers, oldest and newest of those at hand."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from gateway.core.descriptors import wait_readable
from gateway.core.errors import (
    ConfigError,
    FatalError,
    GatewayError,
    SlotBusyError,
    SlotError,
    TransientError,
)
from gateway.core.lsn import Lsn, parse_lsn
from gateway.source.session.connection import connect, server_facts
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import SlotStatus, check_slot, drop_slot, slot_status
from tests.support.backends.servers import Database, PostgresServer
from tests.support.run.waiting import wait_until

pytestmark = pytest.mark.postgres
majors = pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)

XLOG_HEADER_BYTES = 25


def slot_name(database: Database) -> str:
    return f"slot_{database.name}"


def messages(source: ReplicationConnection, enough: Callable[[list[bytes]], bool]) -> list[bytes]:
    """The pgoutput messages of XLogData frames, until `enough` says so."""
    found: list[bytes] = []
    deadline = time.monotonic() + 120
    while not enough(found):
        assert time.monotonic() < deadline, f"not enough messages: {found!r}"
        frames = source.receive(100)
        found += [frame[XLOG_HEADER_BYTES:] for frame in frames if frame[:1] == b"w"]
        if not frames:
            wait_readable([source.fileno()], 1.0)
    return found


def until_error(source: ReplicationConnection) -> GatewayError:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if not source.receive(100):
                wait_readable([source.fileno()], 1.0)
        except GatewayError as error:
            return error
    raise AssertionError("the stream did not end")


def commits(count: int) -> Callable[[list[bytes]], bool]:
    return lambda found: sum(message[:1] == b"C" for message in found) >= count


def inserted(message: bytes) -> list[bytes | None]:
    """The columns of an Insert message, read by the manual's table of TupleData."""
    assert message[:1] == b"I" and message[5:6] == b"N"
    (count,) = struct.unpack_from(">H", message, 6)
    at = 8
    columns: list[bytes | None] = []
    for _ in range(count):
        kind = message[at : at + 1]
        if kind == b"n":
            columns.append(None)
            at += 1
        else:
            (size,) = struct.unpack_from(">I", message, at + 1)
            columns.append(message[at + 5 : at + 5 + size])
            at += 5 + size
    return columns


@pytest.fixture
def replication(database: Database) -> Iterator[ReplicationConnection]:
    with ReplicationConnection(database.dsn) as connection:
        yield connection


@majors
def test_facts_agree_with_identify_system(database: Database) -> None:
    dsn = psycopg.conninfo.make_conninfo(database.dsn, replication="database")
    with (
        connect(database.dsn) as connection,
        psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor, autocommit=True) as walsender,
    ):
        facts = server_facts(connection)
        identity = walsender.execute("IDENTIFY_SYSTEM").fetchone()

    assert identity is not None
    assert (facts.system_identifier, facts.timeline) == (identity[0], int(identity[1]))
    assert facts.database == identity[3] == database.name
    assert (facts.encoding, facts.wal_level) == ("UTF8", "logical")


@majors
def test_feedback_advances_confirmed_flush_lsn_and_never_takes_it_back(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
        writer.execute("CREATE PUBLICATION p FOR TABLE t")
        source.create_slot(name)
        source.start(name, ["p"])
        writer.execute("INSERT INTO t VALUES (1)")
        commit = next(m for m in messages(source, commits(1)) if m[:1] == b"C")
        (end_lsn,) = struct.unpack_from(">Q", commit, 10)

        source.send_feedback(Lsn(end_lsn))
        source.send_feedback(Lsn(1))

        def confirmed() -> bool:
            status = slot_status(writer, name)
            return status is not None and status.confirmed_flush_lsn == end_lsn

        wait_until(confirmed, 60, "confirmed_flush_lsn to reach the commit")
        assert struct.unpack_from(">Q", _reply(source), 1)[0] >= end_lsn
        assert confirmed()


@majors
def test_feedback_beyond_what_the_server_has_sent_does_not_move_the_slot(
    database: Database,
) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
        writer.execute("CREATE PUBLICATION p FOR TABLE t")
        made = source.create_slot(name)
        source.start(name, ["p"])
        row = writer.execute("SELECT (pg_current_wal_lsn() + 1e9::numeric)::text").fetchone()
        assert row is not None
        beyond = parse_lsn(row[0])

        source.send_feedback(beyond, write_lsn=beyond)
        answered_at = struct.unpack_from(">Q", _reply(source), 1)[0]
        source.send_feedback(beyond, write_lsn=beyond)
        _reply(source)

        status = slot_status(writer, name)
        assert status is not None and status.confirmed_flush_lsn is not None
        assert status.confirmed_flush_lsn <= max(made, answered_at)

        writer.execute("INSERT INTO t VALUES (1)")
        commit = next(m for m in messages(source, commits(1)) if m[:1] == b"C")
        (end_lsn,) = struct.unpack_from(">Q", commit, 10)
        source.send_feedback(Lsn(end_lsn), write_lsn=beyond)

        def confirmed() -> bool:
            status = slot_status(writer, name)
            return status is not None and status.confirmed_flush_lsn == end_lsn

        # Not by a keepalive: the server also sends one of its own behind the commit.
        wait_until(confirmed, 60, "confirmed_flush_lsn to reach the commit")


def _reply(source: ReplicationConnection) -> bytes:
    """The keepalive that answers a status update with `reply_requested`."""
    source.send_feedback(Lsn(0), reply_requested=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for frame in source.receive(100):
            if frame[:1] == b"k":
                return frame
        wait_readable([source.fileno()], 1.0)
    raise AssertionError("no keepalive")


@majors
def test_creating_a_slot_waits_for_open_transactions_and_gives_up_without_a_trace(
    database: Database,
) -> None:
    waited: list[float] = []
    name = slot_name(database)
    with database.connect() as writer, database.connect() as other:
        writer.execute("BEGIN")
        writer.execute("SELECT txid_current()")
        with (
            ReplicationConnection(database.dsn) as source,
            pytest.raises(TransientError, match=r"not done after 2 s\n.*xact_start"),
        ):
            source.create_slot(name, timeout_s=2.0, on_wait=waited.append)
        wait_until(lambda: slot_status(other, name) is None, 60, "the half-made slot to go")

    assert waited


@pytest.mark.parametrize("postgres_major", [16, 17, 18], indirect=True)
@pytest.mark.parametrize("two_phase", [False, True])
def test_a_slot_that_lasts_fails_over_where_the_server_can(
    database: Database, postgres_major: int, two_phase: bool
) -> None:
    name = slot_name(database)
    column = "failover" if postgres_major >= 17 else "false"
    query = f"SELECT {column}, two_phase FROM pg_replication_slots WHERE slot_name = %s"
    with database.connect() as connection, ReplicationConnection(database.dsn) as source:
        source.create_slot(name, two_phase=two_phase)
        found = connection.execute(query.encode(), [name]).fetchone()

    assert found == (postgres_major >= 17, two_phase)


@majors
def test_slot_in_use_or_made_meanwhile_is_busy(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer:
        writer.execute("CREATE PUBLICATION p")
        with ReplicationConnection(database.dsn) as first:
            first.create_slot(name)
            first.start(name, ["p"])
            with (
                ReplicationConnection(database.dsn) as second,
                pytest.raises(TransientError, match="is active for PID"),
            ):
                second.start(name, ["p"])
        with (
            ReplicationConnection(database.dsn) as third,
            pytest.raises(SlotBusyError, match="already exists"),
        ):
            third.create_slot(name)


@majors
def test_slot_that_is_not_there_cannot_be_started_or_dropped(database: Database) -> None:
    with (
        ReplicationConnection(database.dsn) as source,
        pytest.raises(SlotError, match='slot "nobody" does not exist'),
    ):
        source.start("nobody", ["p"])
    with (
        ReplicationConnection(database.dsn) as source,
        pytest.raises(SlotError, match='slot "nobody" does not exist'),
    ):
        source.drop_slot("nobody")


def test_a_slot_is_dropped_by_the_session_that_may_and_by_no_other(database: Database) -> None:
    name = slot_name(database)
    waits: list[float] = []

    def stopping() -> None:
        raise TransientError("stopping")

    with database.connect() as writer, ReplicationConnection(database.dsn) as reader:
        writer.execute("CREATE PUBLICATION p")
        reader.create_slot(name)
        reader.start(name, ["p"])

        with pytest.raises(SlotBusyError, match="still in use"):
            drop_slot(writer, name, pause=waits.append, timeout_s=0.0)
        with pytest.raises(TransientError, match="stopping"):
            drop_slot(writer, name, pause=lambda _: None, on_wait=stopping)
        reader.close()
        gone = database.connect()
        gone.close()
        with pytest.raises(TransientError):
            drop_slot(gone, name, pause=waits.append)
        assert slot_status(writer, name) is not None

        drop_slot(writer, name, pause=lambda _: None)
        assert slot_status(writer, name) is None
        drop_slot(writer, name, pause=waits.append)


def test_frames_come_in_their_order_and_no_more_than_asked_for(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("CREATE TABLE t (a int, b text)")
        writer.execute("CREATE PUBLICATION p FOR TABLE t")
        source.create_slot(name)
        writer.execute(
            "INSERT INTO t SELECT n, repeat('x', n % 3000) FROM generate_series(1, 2000) n"
        )
        source.start(name, ["p"])
        inserts: list[bytes] = []
        deadline = time.monotonic() + 120
        while len(inserts) < 2_000 and time.monotonic() < deadline:
            frames = source.receive(100)
            assert len(frames) <= 100
            inserts += [frame for frame in frames if frame[XLOG_HEADER_BYTES:26] == b"I"]
            if not frames:
                wait_readable([source.fileno()], 1.0)

    texts = [frame[38 + frame[37] :] for frame in inserts]
    assert [frame[38 : 38 + frame[37]] for frame in inserts] == [b"%d" % n for n in range(1, 2_001)]
    assert [text[5:] for text in texts] == [b"x" * (n % 3000) for n in range(1, 2_001)]


@majors
def test_publication_dropped_under_the_stream_stops_it(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("CREATE TABLE t (a int)")
        writer.execute("CREATE PUBLICATION p FOR TABLE t")
        source.create_slot(name)
        source.start(name, ["p"])
        writer.execute("DROP PUBLICATION p")
        writer.execute("INSERT INTO t VALUES (1)")

        error = until_error(source)

    assert isinstance(error, FatalError)
    assert "without a publication" in error.message


@majors
def test_walsender_that_is_terminated_is_transient(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("CREATE PUBLICATION p")
        source.create_slot(name)
        source.start(name, ["p"])
        writer.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [name],
        )

        error = until_error(source)

        assert isinstance(error, TransientError)
        with pytest.raises(TransientError):
            source.receive(1)


@majors
def test_slot_status_tells_plugin_and_database(
    database: Database, postgres: PostgresServer
) -> None:
    name = slot_name(database)
    with database.connect() as writer:
        assert slot_status(writer, name) is None
        writer.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        row = writer.execute(
            "SELECT confirmed_flush_lsn::text, restart_lsn::text FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [name],
        ).fetchone()
        status = slot_status(writer, name)

    assert row is not None and status is not None
    assert (status.plugin, status.database) == ("pgoutput", database.name)
    assert (status.confirmed_flush_lsn, status.restart_lsn) == (
        parse_lsn(row[0]),
        parse_lsn(row[1]),
    )
    assert not status.active and not status.lost
    check_slot(status, database.name)


GOOD_SLOT = {
    "name": "s",
    "plugin": "pgoutput",
    "database": "d",
    "temporary": False,
    "active_pid": None,
    "confirmed_flush_lsn": Lsn(1),
    "restart_lsn": Lsn(1),
    "wal_status": "reserved",
    "safe_wal_bytes": None,
    "invalidation_reason": None,
    "two_phase": False,
}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("plugin", None, "physical slot"),
        ("plugin", "wal2json", "plugin wal2json"),
        ("database", "other", "belongs to database other"),
        ("wal_status", "lost", "is lost"),
        ("invalidation_reason", "idle_timeout", "idle_timeout"),
        ("confirmed_flush_lsn", None, "not created to its end"),
    ],
)
def test_slot_that_cannot_be_read_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(SlotError, match=message):
        check_slot(SlotStatus(**{**GOOD_SLOT, field: value}), "d")


@pytest.mark.parametrize("open_", [connect, ReplicationConnection], ids=["query", "replication"])
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"dbname": "no_such_database"}, FatalError, "does not exist"),
        ({"user": "no_such_role"}, FatalError, "does not exist"),
        ({"port": "1"}, TransientError, "cannot be reached"),
    ],
    ids=["database", "role", "port"],
)
def test_failure_to_connect_says_whether_it_may_pass(
    database: Database,
    open_: Callable[[str], object],
    change: dict[str, str],
    kind: type[GatewayError],
    message: str,
) -> None:
    role = f"{database.name}_role"  # which is let in with any password
    with database.connect() as connection:
        connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN".encode())
    given = {"user": role, "password": "s3cret-pw", **change}
    dsn = psycopg.conninfo.make_conninfo(database.dsn, **given)

    with pytest.raises(kind, match=message) as caught:
        open_(dsn)

    assert "s3cret-pw" not in str(caught.value)
    assert caught.value.hint


def test_broken_dsn_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"source\.dsn") as caught:
        connect("postgres password=s3cret-pw nonsense")

    assert "s3cret-pw" not in str(caught.value)


def test_on_amazon_rds_a_membership_stands_for_the_right_to_replicate(database: Database) -> None:
    role = f"{database.name}_role"
    statements = (
        f"CREATE ROLE {role}",
        "CREATE ROLE rds_replication",  # RDS has it; no role has the attribute there
        f"GRANT rds_replication TO {role}",
    )
    with psycopg.connect(database.dsn) as connection:
        for may, statement in zip((False, False, True), statements, strict=True):
            connection.execute(statement.encode())
            connection.execute(f"SET LOCAL ROLE {role}".encode())
            assert server_facts(connection).can_replicate is may
            connection.execute("RESET ROLE")
        connection.rollback()


def test_database_in_another_encoding_is_refused(postgres: PostgresServer) -> None:
    name = "latin1_database"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        try:
            with (
                connect(postgres.dsn(name)) as connection,
                pytest.raises(FatalError, match="LATIN1"),
            ):
                server_facts(connection)
        finally:
            admin.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize("name", ["", "Upper", "a-b", 'x"y', "é", "a" * 64])
def test_name_that_no_slot_can_have_is_refused(
    replication: ReplicationConnection, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"source\.slot"):
        replication.create_slot(name)


@majors
def test_options_of_the_newest_protocol_are_taken(database: Database) -> None:
    name = slot_name(database)
    with database.connect() as writer, ReplicationConnection(database.dsn) as source:
        writer.execute("""CREATE PUBLICATION "p '""1" """)
        source.create_slot(name, two_phase=True)
        source.start(
            name,
            ["""p '"1"""],
            version=4,
            streaming="parallel",
            messages=True,
            binary=True,
            origin="none",
            two_phase=True,
        )
        writer.execute("SELECT pg_logical_emit_message(false, 'prefix', 'content')")
        found = messages(source, lambda found: any(m[:1] == b"M" for m in found))

    assert any(b"content" in message for message in found)
