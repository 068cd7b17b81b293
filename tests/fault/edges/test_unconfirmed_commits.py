"""Commits that are streamed and that other sessions do not see yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

import psycopg
import pytest

from gateway.copy import ChunkRequest, Snapshot, row_of
from gateway.core.errors import TransientError
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.source.catalog.tables import read_tables
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.session.connection import connect
from gateway.source.session.visibility import wait_until_visible
from tests.support.backends.rack import Rack, RackServer
from tests.support.gateway.scene import Connection, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_BACKEND = """
    SELECT max(backend_xid::text) FROM pg_stat_activity
    WHERE wait_event = 'SyncRep' AND query IN ('ALTER TABLE t ADD b int', 'COMMIT')"""


@contextmanager
def without_its_standby(server: RackServer) -> Iterator[None]:
    """Let commits wait for a standby that there is not, for as long as the block lasts.

    After a reload they would not wait before the checkpointer has read the setting, either.
    """
    try:
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.restart()
        yield
    finally:
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


def test_a_commit_that_a_synchronous_standby_has_not_confirmed_is_waited_for(rack: Rack) -> None:
    server = rack.server(synchronous_commit="local")
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a int)")
    with ThreadPoolExecutor(2) as threads, ExitStack() as sessions:
        with without_its_standby(server):
            connection = sessions.enter_context(server.connect())
            gateway = sessions.enter_context(connect(server.dsn()))
            threads.submit(alter, server.connect)
            wait_until(lambda: value_of(connection, _BACKEND), 60, "the commit to hang")
            xid = int(value_of(connection, _BACKEND)) % 2**32
            assert columns(connection) == ["a"]
            with pytest.raises(TransientError, match="other sessions do not see it") as late:
                wait_until_visible(gateway, xid, 0.1)
            assert "synchronous_standby_names" in (late.value.hint or "")
            waiting: Future[None] = threads.submit(wait_until_visible, gateway, xid, 300)
        waiting.result(300)
        assert columns(gateway) == ["a", "b"]


def test_the_first_read_waits_for_it_whatever_its_role_may_write(rack: Rack) -> None:
    """The stream may have sent the commit to a process before, which sends it to nobody again."""
    server = rack.server(synchronous_commit="local")
    role = f"role_{server.name}"
    with server.connect() as connection:
        connection.execute(
            f"CREATE TABLE t (a int); CREATE ROLE {role} LOGIN PASSWORD '{role}';"
            f"GRANT SELECT ON t TO {role};"
            f"ALTER ROLE {role} SET synchronous_commit = on;"
            f"ALTER ROLE {role} SET default_transaction_read_only = on;"
            "REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(bool, text, text, bool)"
            " FROM PUBLIC".encode()
        )
        [(oid,)] = connection.execute("SELECT 't'::regclass::oid::bigint")
    dsn = psycopg.conninfo.make_conninfo(server.dsn(), user=role, password=role)
    snapshots: list[Snapshot] = []
    first = FirstSnapshot("waiting", Event())
    with ThreadPoolExecutor(2) as threads, ExitStack() as sessions:
        with without_its_standby(server):
            with connect(server.dsn()) as catalog:
                source = ChunkSource(read_tables(catalog, [oid])[oid], ("a",), ())
            with ChunkReader(dsn) as reader, pytest.raises(Exception, match="denied"):
                reader.flush()
            reader = sessions.enter_context(ChunkReader(dsn))
            connection = sessions.enter_context(server.connect())
            threads.submit(insert, server.connect)
            wait_until(lambda: value_of(connection, _BACKEND), 60, "the commit to hang")
            waiting = threads.submit(first.wait, reader, snapshots.append)
            looks = lambda: len(snapshots) > 2 or waiting.done()  # noqa: E731
            wait_until(looks, 60, "a few looks")
            assert not waiting.done()
        waiting.result(300)
        chunk = reader.read(source, ChunkRequest(True, None, ()), 0)
        assert [tuple(row_of(row)) for row in chunk.rows] == [(b"1",)]
    with server.connect() as connection:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def insert(connect_to: Callable[[], Connection]) -> None:
    with connect_to() as connection, connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute("INSERT INTO t VALUES (1)")


def alter(connect_to: Callable[[], Connection]) -> None:
    with connect_to() as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("ALTER TABLE t ADD b int")


def columns(connection: psycopg.Connection) -> list[str]:
    query = (
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = to_regclass('public.t') AND attnum > 0 ORDER BY attnum"
    )
    return [name for (name,) in connection.execute(query)]
