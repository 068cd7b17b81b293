"""Connections to PostgreSQL through a network that freezes, resets and refuses."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from gateway.copy import ChunkRequest
from gateway.core.descriptors import wait_readable
from gateway.core.errors import GatewayError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.source.catalog.catalog import ServerCatalog
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.session.connection import connect
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import slot_status
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database
from tests.support.run.waiting import PATIENCE, wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SLACK_S = 10.0
"""Seconds that a machine may add by itself; `PATIENCE` times as many when it is busy. Without the
bound that a test is about, each of these waits would take a minute at least."""


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(database.dsn) as made:
        yield made


@pytest.fixture
def dsn(database: Database, proxy: Proxy) -> str:
    """The database through the proxy."""
    return proxy.through(database.dsn)


@pytest.fixture
def slot(database: Database) -> str:
    """A slot, and a publication `p` of table `t`."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    name = f"s_{database.name}"
    with ReplicationConnection(database.dsn) as creator:
        creator.create_slot(name)
    return name


class Interrupted(Exception):
    pass


def interrupted_after(seconds: float) -> Callable[[], None]:
    """Return an `on_wait` that raises when so much time has passed."""
    until = time.monotonic() + seconds

    def look() -> None:
        if time.monotonic() >= until:
            raise Interrupted

    return look


def read_until_lost(source: ReplicationConnection) -> tuple[GatewayError, float]:
    """Read without ever confirming; the error at the end, and the seconds until it came."""
    started = time.monotonic()
    try:
        while time.monotonic() - started < 60 * PATIENCE:
            if not source.receive(1000):
                wait_readable([source.fileno()], 0.1)
    except GatewayError as error:
        return error, time.monotonic() - started
    raise AssertionError("the stream was not given up")


def test_a_stream_that_falls_silent_is_lost_within_the_receiver_timeout(
    proxy: Proxy, dsn: str, slot: str
) -> None:
    with ReplicationConnection(dsn, receiver_timeout_s=2) as source:
        source.start(slot, ["p"])
        proxy.freeze()
        error, seconds = read_until_lost(source)

    assert isinstance(error, TransientError)
    assert "no message from the server" in error.message
    assert 2 <= seconds < 2 + SLACK_S * PATIENCE


def test_a_stream_whose_questions_do_not_arrive_is_lost_as_well(
    proxy: Proxy, dsn: str, slot: str
) -> None:
    with ReplicationConnection(dsn, receiver_timeout_s=2) as source:
        source.start(slot, ["p"])
        proxy.freeze("to_server")
        error, _ = read_until_lost(source)

    assert isinstance(error, TransientError)


def test_the_receiver_timeout_is_the_servers_wal_sender_timeout_by_default(
    proxy: Proxy, dsn: str, slot: str
) -> None:
    set_in_session = psycopg.conninfo.make_conninfo(dsn, options="-c wal_sender_timeout=3s")
    with ReplicationConnection(set_in_session) as source:
        source.start(slot, ["p"])
        proxy.freeze()
        error, seconds = read_until_lost(source)

    assert "no message from the server" in error.message
    assert 3 <= seconds < 3 + SLACK_S * PATIENCE


def test_an_idle_server_that_answers_is_not_lost(dsn: str, slot: str) -> None:
    timeout_s = 5  # which a walsender that only gets no CPU does not take to answer
    with ReplicationConnection(dsn, receiver_timeout_s=timeout_s) as source:
        source.start(slot, ["p"])
        until = time.monotonic() + 2 * timeout_s
        answers = 0
        while time.monotonic() < until or answers < 3:  # one for each half, or the stream is lost
            answers += len(source.receive(1000))
            wait_readable([source.fileno()], 0.1)


def test_a_receiver_timeout_of_0_never_ends_the_stream(proxy: Proxy, dsn: str, slot: str) -> None:
    with ReplicationConnection(dsn, receiver_timeout_s=0) as source:
        source.start(slot, ["p"])
        proxy.freeze()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            source.receive(1000)
            wait_readable([source.fileno()], 0.1)


def test_a_query_whose_answer_does_not_come_ends(proxy: Proxy, dsn: str) -> None:
    with connect(dsn, statement_timeout_s=1) as connection:
        proxy.freeze()
        with (
            within(SLACK_S, "the query"),
            pytest.raises(TransientError, match="nothing was heard from the server"),
        ):
            slot_status(connection, "s")
        assert connection.closed


def test_a_query_that_waits_can_be_interrupted(proxy: Proxy, dsn: str) -> None:
    raises = threading.Event()

    def look() -> None:
        if raises.is_set():
            raise Interrupted

    with connect(dsn, on_wait=look) as connection:
        proxy.freeze()
        raises.set()
        with within(SLACK_S, "the query"), pytest.raises(Interrupted):
            slot_status(connection, "s")


@pytest.mark.parametrize("open_", [connect, ReplicationConnection], ids=["query", "replication"])
class TestConnecting:
    def test_to_a_frozen_server_ends_with_the_connect_timeout(
        self, proxy: Proxy, dsn: str, open_: Callable[[str], object]
    ) -> None:
        proxy.freeze()
        with (
            within(SLACK_S, "connecting", at_least=2),
            pytest.raises(TransientError, match="timeout expired"),
        ):
            open_(psycopg.conninfo.make_conninfo(dsn, connect_timeout=2))

    def test_to_a_frozen_server_can_be_interrupted(
        self, proxy: Proxy, dsn: str, open_: Callable[..., object]
    ) -> None:
        proxy.freeze()
        with within(SLACK_S, "connecting"), pytest.raises(Interrupted):
            open_(dsn, on_wait=interrupted_after(0.5))

    def test_that_is_reset_may_pass_though_the_server_is_there(
        self, proxy: Proxy, dsn: str, open_: Callable[[str], object]
    ) -> None:
        def reset_first() -> None:
            wait_until(lambda: proxy.accepted > 0, SLACK_S, "a connection")
            proxy.reset()
            proxy.thaw()

        proxy.freeze()
        resetter = threading.Thread(target=reset_first)
        resetter.start()
        with pytest.raises(TransientError):
            open_(dsn)
        resetter.join()

    def test_that_is_refused_by_the_network_may_pass(
        self, proxy: Proxy, dsn: str, open_: Callable[[str], object]
    ) -> None:
        proxy.refuse()
        with pytest.raises(TransientError, match="cannot be reached"):
            open_(dsn)


@pytest.fixture
def source(database: Database) -> ChunkSource:
    """A table of 10000 rows of 100 bytes."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute(
            "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i"
        )
        row = connection.execute("SELECT 't'::regclass::oid").fetchone()
    assert row is not None
    with connect(database.dsn) as catalog:
        table = ServerCatalog(catalog).table(row[0])
    assert table is not None
    return ChunkSource(table, ("a", "b"), ("a",))


def test_a_chunk_that_does_not_come_ends(proxy: Proxy, dsn: str, source: ChunkSource) -> None:
    short = psycopg.conninfo.make_conninfo(dsn, connect_timeout=2)
    with ChunkReader(short, silence_s=1) as reader:
        reader.read(source, ChunkRequest(True, None, ()), 10)
        proxy.freeze()
        with within(SLACK_S, "the chunk"), pytest.raises(TransientError):
            reader.read(source, ChunkRequest(True, (b"10",), ()), 10)


def test_a_chunk_that_is_late_because_the_server_waits_for_a_lock_comes(
    database: Database, dsn: str, source: ChunkSource
) -> None:
    with database.connect() as locker, ChunkReader(dsn, lock_timeout_s=60, silence_s=2) as reader:
        locker.execute("BEGIN; LOCK TABLE t")
        unlocker = threading.Timer(6, locker.execute, ["COMMIT"])
        unlocker.start()
        chunk = reader.read(source, ChunkRequest(True, None, ()), 10)
        unlocker.join()

    assert chunk.size == 10


def test_a_slot_that_is_not_made_yet_can_be_given_up(database: Database, dsn: str) -> None:
    name = f"s_{database.name}"
    interrupt = threading.Event()

    def look() -> None:
        if interrupt.is_set():
            raise Interrupted

    with database.connect() as writer, database.connect() as other:
        writer.execute("BEGIN; CREATE TABLE t (a int)")
        with ReplicationConnection(dsn, on_wait=look) as source:
            interrupt.set()
            with pytest.raises(Interrupted):
                source.create_slot(name)
        wait_until(lambda: slot_status(other, name) is None, 60, "the half-made slot to go")


def test_a_command_that_is_not_answered_ends_with_the_commands_deadline(
    proxy: Proxy, dsn: str, slot: str
) -> None:
    interrupt = threading.Event()

    def look() -> None:
        if interrupt.is_set():
            raise Interrupted

    with ReplicationConnection(dsn, on_wait=look) as source:
        proxy.freeze()
        interrupt.set()
        with pytest.raises(Interrupted):
            source.start(slot, ["p"])


def test_the_last_feedback_has_been_read_when_the_stream_is_finished(
    database: Database, dsn: str, slot: str
) -> None:
    with database.connect() as writer:
        for number in range(20):
            with ReplicationConnection(dsn) as source:
                source.start(slot, ["p"])
                writer.execute(
                    "INSERT INTO t SELECT %s * 1000 + i FROM generate_series(1, 1000) i", [number]
                )
                end = _commit_end(source)
                # The server is in the middle of sending, and what it sends is not read any more.
                writer.execute("UPDATE t SET a = -a")
                writer.execute("UPDATE t SET a = -a")
                source.send_feedback(end)
                assert source.finish(timeout_s=30 * PATIENCE)
            status = slot_status(writer, slot)
            assert status is not None
            assert status.confirmed_flush_lsn == end
            assert not status.active


def test_a_stream_that_cannot_be_finished_is_closed_at_the_deadline(
    proxy: Proxy, dsn: str, slot: str
) -> None:
    with ReplicationConnection(dsn) as source:
        source.start(slot, ["p"])
        proxy.freeze()
        source.send_feedback(ZERO_LSN)
        with within(SLACK_S, "the end of the stream", at_least=1):
            assert not source.finish(timeout_s=1)


def _commit_end(source: ReplicationConnection) -> Lsn:
    deadline = time.monotonic() + 30 * PATIENCE
    while time.monotonic() < deadline:
        for frame in source.receive(100_000):
            if frame[25:26] == b"C":
                return Lsn(struct.unpack_from(">Q", frame, 25 + 10)[0])
        wait_readable([source.fileno()], 1.0)
    raise AssertionError("no commit in 30 s")
