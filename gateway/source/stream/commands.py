"""Walsender commands, and the end of a stream, with a deadline.

Source: PostgreSQL manual, "Streaming Replication Protocol"; fe-exec.c.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import pq
from psycopg.pq import abc

from gateway.core.descriptors import wait_for_socket
from gateway.core.errors import TransientError
from gateway.source.session.server_errors import classify_server_error
from gateway.source.session.session import Session
from gateway.source.stream.errors import classify_result

__all__ = ["CommandTimeout", "Waited", "end_copy", "exchange", "run", "run_for_row"]

_COMMAND_TIMEOUT_S: Final = 30.0
_STEP_S: Final = 0.1
_REPORT_S: Final = 1.0
_CANCEL_S: Final = 1.0

Waited = Callable[[float], None]
"""Called about every second with the seconds waited so far; may raise."""


class CommandTimeout(TransientError):
    """Raised when a command was not done in time; its session is closed."""


def run_for_row(
    session: Session,
    command: str,
    *,
    doing: str,
    timeout_s: float = _COMMAND_TIMEOUT_S,
    waited: Waited = lambda _: None,
) -> list[str]:
    """Run a walsender command that answers with one row; return its columns as text. See `run`."""
    result = run(session, command, doing=doing, timeout_s=timeout_s, waited=waited)
    if result.ntuples != 1:
        raise TransientError(f"{doing}: the server gave {result.ntuples} rows, not 1")
    return [(result.get_value(0, i) or b"").decode() for i in range(result.nfields)]


def run(
    session: Session,
    command: str,
    *,
    doing: str,
    timeout_s: float = _COMMAND_TIMEOUT_S,
    waited: Waited = lambda _: None,
) -> abc.PGresult:
    """Run one walsender command; the result of a started stream is the COPY_BOTH one.

    A failed command ends the session, which undoes it.

    Raises:
        CommandTimeout: not done within `timeout_s`.
        GatewayError: the exception of `waited` or the session's `on_wait`, or the server's refusal.
    """
    conn = session.pgconn
    last: abc.PGresult | None = None
    try:
        conn.send_query(command.encode())
        deadline = time.monotonic() + timeout_s
        while True:
            if not _wait_for_result(session, deadline, waited):
                raise CommandTimeout(f"{doing}: no answer after {timeout_s:.0f} s")
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
        session.close()
        raise
    if last is None:
        raise TransientError(f"{doing}: the server gave no answer")
    return last


def _wait_for_result(session: Session, deadline: float, waited: Waited) -> bool:
    """Wait until a result is ready; return False when the deadline comes first."""
    conn = session.pgconn
    started = reported = time.monotonic()
    unsent = conn.flush()
    try:
        while unsent or conn.is_busy():
            now = time.monotonic()
            if now >= deadline:
                _cancel(session)
                return False
            socket = conn.socket
            readable, _ = wait_for_socket(
                socket, min(_STEP_S, deadline - now), read=True, write=bool(unsent)
            )
            if readable:
                conn.consume_input()
            unsent = conn.flush()
            session.on_wait()
            if now - reported >= _REPORT_S:
                reported = now
                waited(now - started)
    except psycopg.Error:
        raise
    except BaseException:
        _cancel(session)
        raise
    return True


def end_copy(conn: abc.PGconn, deadline: float) -> bool:
    """Send CopyDone and read until the end of the command, discarding frames.

    The server ends its side when it has read all that came before ours.

    Returns:
        Whether it has; False at `deadline` (monotonic), or when it ended with an error.

    Raises:
        psycopg.Error: the connection is gone.

    Source: ProcessRepliesIfAny and WalSndLoop in walsender.c.
    """
    while conn.put_copy_end() == 0:
        if not exchange(conn, deadline):
            return False
    while (size := conn.get_copy_data(1)[0]) >= 0:
        if size == 0 and not exchange(conn, deadline):
            return False
    while conn.is_busy():
        if not exchange(conn, deadline):
            return False
    result = conn.get_result()
    return result is not None and result.status == pq.ExecStatus.COMMAND_OK


def exchange(conn: abc.PGconn, deadline: float) -> bool:
    """Send and receive what the socket allows, waiting for it; return False at the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        return False
    unsent = bool(conn.flush())
    if wait_for_socket(conn.socket, left, read=True, write=unsent)[0]:
        conn.consume_input()
    return True


def _cancel(session: Session) -> None:
    """Cancel the command: a walsender that waits for a lock does not see the end of the socket."""
    with contextlib.suppress(psycopg.Error):  # the connection is closed next in any case
        session.cancel_safe(timeout=_CANCEL_S)
