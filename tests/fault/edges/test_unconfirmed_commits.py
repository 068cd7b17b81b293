"""Commits that are streamed and that other sessions do not see yet."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from gateway.core.errors import TransientError
from gateway.source.session.connection import connect
from gateway.source.session.visibility import wait_until_visible
from tests.support.backends.rack import Rack
from tests.support.gateway.scene import Connection, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_BACKEND = """
    SELECT max(backend_xid::text) FROM pg_stat_activity
    WHERE wait_event = 'SyncRep' AND starts_with(query, 'ALTER TABLE t')"""


def test_a_commit_that_a_synchronous_standby_has_not_confirmed_is_waited_for(rack: Rack) -> None:
    server = rack.server(synchronous_commit="local")
    with server.connect() as connection, connect(server.dsn()) as gateway:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        with ThreadPoolExecutor(2) as threads:
            try:
                threads.submit(alter, server.connect)
                wait_until(lambda: value_of(connection, _BACKEND), 60, "the commit to hang")
                xid = int(value_of(connection, _BACKEND)) % 2**32
                assert columns(connection) == ["a"]
                with pytest.raises(TransientError, match="other sessions do not see it") as late:
                    wait_until_visible(gateway, xid, 0.1)
                assert "synchronous_standby_names" in (late.value.hint or "")
                waiting: Future[None] = threads.submit(wait_until_visible, gateway, xid, 300)
            finally:
                connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                connection.execute("SELECT pg_reload_conf()")
            waiting.result(300)
            assert columns(gateway) == ["a", "b"]


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
