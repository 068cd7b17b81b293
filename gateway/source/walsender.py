"""Run walsender commands with a deadline.

Source: PostgreSQL manual, "Streaming Replication Protocol"; fe-exec.c.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import pq
from psycopg.pq import abc

from gateway.errors import TransientError
from gateway.source.connection import classify_server_error
from gateway.source.walsender_errors import classify_result

__all__ = ["CommandTimeout", "run", "run_for_row"]

_COMMAND_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 1.0


class CommandTimeout(Exception):
    """The command was not done in time; its session is closed."""


def run_for_row(
    conn: abc.PGconn,
    command: str,
    *,
    doing: str,
    timeout_s: float = _COMMAND_TIMEOUT_S,
    on_wait: Callable[[float], None] | None = None,
) -> list[str]:
    """Run a walsender command that answers with one row, see `run`; its columns as text."""
    result = run(conn, command, doing=doing, timeout_s=timeout_s, on_wait=on_wait)
    if result.ntuples != 1:
        raise TransientError(f"{doing}: the server gave {result.ntuples} rows, not 1")
    return [(result.get_value(0, i) or b"").decode() for i in range(result.nfields)]


def run(
    conn: abc.PGconn,
    command: str,
    *,
    doing: str,
    timeout_s: float = _COMMAND_TIMEOUT_S,
    on_wait: Callable[[float], None] | None = None,
) -> abc.PGresult:
    """Run one walsender command; the result of a started stream is the COPY_BOTH one.

    A command that does not end well ends the session, which is what undoes it.

    Raises:
        CommandTimeout: not done within `timeout_s`.
        GatewayError: what `on_wait` raised, or the server's refusal.
    """
    started = time.monotonic()
    last: abc.PGresult | None = None
    try:
        conn.send_query(command.encode())
        while True:
            _wait_for_result(conn, started, timeout_s, on_wait)
            result = conn.get_result()
            if result is None:
                break
            last = result
            if result.status == pq.ExecStatus.COPY_BOTH:
                break
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise classify_result(result, doing=doing)
    except psycopg.Error as error:
        raise classify_server_error(None, str(error), doing=doing) from None
    except BaseException:
        conn.finish()
        raise
    if last is None:
        raise TransientError(f"{doing}: the server gave no answer")
    return last


def _wait_for_result(
    conn: abc.PGconn,
    started: float,
    timeout_s: float,
    on_wait: Callable[[float], None] | None,
) -> None:
    unsent = conn.flush()
    while unsent or conn.is_busy():
        waited = time.monotonic() - started
        if waited >= timeout_s:
            _cancel(conn)
            raise CommandTimeout
        socket = conn.socket
        readable, writable, _ = select.select(
            [socket], [socket] if unsent else [], [], min(_POLL_S, timeout_s - waited)
        )
        if readable:
            conn.consume_input()
        unsent = conn.flush()
        if not readable and not writable and on_wait is not None:
            on_wait(time.monotonic() - started)


def _cancel(conn: abc.PGconn) -> None:
    """Ask the server to stop; a walsender that waits for a lock does not see the socket end."""
    try:
        conn.get_cancel().cancel()
    except psycopg.Error:
        return  # the connection is closed next in any case
