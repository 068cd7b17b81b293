"""Reader of ``COPY ... TO STDOUT`` lines, many per call in C, or one at a time by psycopg.

`gateway/_speedups/reading` needs a compiled psycopg. With another one, without the built module, or
with ``PGSLUICE_INTERPRETED=1``, psycopg reads each line, with one wait for many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, cast

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.pq.abc import PGconn
from psycopg.waiting import Wait

from gateway._speedups.loader import load_compiled, why_switched_off
from gateway.source.session.session import Session

__all__ = ["copy_lines"]

_LINES: Final = 10_000
_BYTES: Final = 1 << 20
_WAIT_MS: Final = 20
_FAILED: Final = -1
_END: Final = 0
_MORE: Final = 1

_Read: TypeAlias = Callable[[PGconn, list[bytes]], int]
"""Appends lines; returns whether it failed, reached the end, or may receive more."""


_READING: Final = load_compiled(
    "reading",
    library=getattr(sys.modules[pq.PGconn.__module__], "__file__", None) or "psycopg",
)


def copy_lines(session: Session, statement: bytes) -> Iterator[list[bytes]]:
    """Run COPY and yield its lines, each with its newline. Exhaust it.

    The session is closed when something goes wrong in the middle.

    Raises:
        psycopg.Error: the server refuses it, or the connection is gone.
        BaseException: the exception of the session's `on_wait`.
    """
    compiled = not isinstance(_READING, str) and why_switched_off() is None
    read = _read_compiled if compiled else _read
    try:
        session.wait(_begin(session.pgconn, statement))
        more = True
        while more:
            lines: list[bytes] = []
            more = session.wait(_some(session.pgconn, read, lines))
            if lines:
                yield lines
            session.on_wait()
        session.wait(_end(session.pgconn))
    finally:
        if session.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            session.close()


def _begin(pgconn: PGconn, statement: bytes) -> PQGen[None]:
    pgconn.send_query(statement)
    (result,) = yield from generators.execute(pgconn)
    if result.status != pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(result)


def _some(pgconn: PGconn, read: _Read, lines: list[bytes]) -> PQGen[bool]:
    """Receive lines; return whether more may come."""
    while (state := read(pgconn, lines)) == _MORE and not lines:
        yield Wait.R
    return state == _MORE


def _end(pgconn: PGconn) -> PQGen[None]:
    (result,) = yield from generators.fetch_many(pgconn)
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result)


def _read(pgconn: PGconn, lines: list[bytes]) -> int:
    consumed = False
    while len(lines) < _LINES:
        size, line = pgconn.get_copy_data(1)
        if size > 0:
            lines.append(bytes(line))
        elif size < 0:
            return _END
        elif consumed:
            break
        else:
            consumed = True
            pgconn.consume_input()
    return _MORE


def _read_compiled(pgconn: PGconn, lines: list[bytes]) -> int:
    assert not isinstance(_READING, str)
    pointer = cast(Any, pgconn).pgconn_ptr
    state: int = _READING.read(pointer, lines, _LINES, _BYTES, _WAIT_MS)
    if state == _FAILED:
        pgconn.consume_input()  # says why
        raise psycopg.OperationalError("the connection is lost in the middle of COPY")
    return state
