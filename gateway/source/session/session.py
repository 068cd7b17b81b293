"""Sessions on the source server with bounded, interruptible waits.

The server's own time limits do not help against a connection that is open but silent: a dead NAT
entry, a proxy that hangs. Every wait of a session therefore ends after some time of silence, and a
callback is called meanwhile, which may raise. Both close the connection, because a late answer
would be mistaken for that to the next question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

from gateway.core.background import OnWait, call_in_background, keep_waiting
from gateway.source.session.connect_errors import classify_connect_failure
from gateway.source.session.password_command import with_password

__all__ = ["DEFAULT_SILENCE_S", "Session", "can_restrict", "open_session", "restrict"]

_Result = TypeVar("_Result")

DEFAULT_SILENCE_S: Final = 60.0
_STEP_S: Final = 0.1

_RESTRICTS_SINCE: Final = {14: 140013, 15: 150008, 16: 160004}
_RESTRICT: Final = (
    "SELECT pg_catalog.set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', false)"
)
_TEXTS: Final = ("text", "name", "varchar")


class _Text(Loader):
    """Loader of text that need not be UTF-8: databases of one server share some catalogs.

    A role, a database or a prepared transaction keeps the bytes of the database it was made in,
    whatever the encoding there. No name of ours is among them; it is shown with escapes.
    """

    def load(self, data: Buffer) -> str:
        return str(data, "utf-8", "backslashreplace")


class Session(psycopg.Connection[TupleRow]):
    """A connection on which every wait has a limit; see `open_session`.

    Attributes:
        silence_s: Seconds for which the server may be silent before an answer.
        is_at_work: Called after that; True allows as much time again.
        on_wait: See `gateway.core.background.OnWait`.
        plain: The connection string without the gateway's settings, for the role's own ones.
        schemas: See `gateway.source.session.search_path.role_schemas`; None until first used.
    """

    plain: str = ""
    schemas: tuple[str, ...] | None = None
    silence_s: float = DEFAULT_SILENCE_S
    is_at_work: Callable[[], bool] = staticmethod(lambda: False)
    on_wait: OnWait = staticmethod(keep_waiting)

    def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait for a step of the protocol, as psycopg does in every call.

        Raises:
            psycopg.OperationalError: the server was silent; without a SQLSTATE, as a lost
                connection.
        """
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: PQGen[_Result]) -> Generator[Wait, Ready | int, _Result]:
        heard = called = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = now
                if now - called >= _STEP_S:
                    called = now
                    if self._was_silent(now - heard):
                        heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _was_silent(self, silent_s: float) -> bool:
        """Return whether a server that was silent for too long is at work."""
        try:
            self.on_wait()
            if silent_s <= self.silence_s:
                return False
            if self.is_at_work():
                return True
            raise psycopg.OperationalError(
                f"nothing was heard from the server for {self.silence_s:g} s"
            )
        except BaseException:
            self.pgconn.finish()
            raise


def open_session(complete: str, *, on_wait: OnWait = keep_waiting) -> Session:
    """Connect, autocommit.

    Args:
        complete: Result of `gateway.source.session.connection.connection_string`.
        on_wait: Called while the connection is being made.

    Its connect_timeout holds for each host and address that is tried.

    Raises:
        TransientError: the server cannot be reached, is starting, or has no free connection; or the
            password command fails.
        FatalError: the server refuses this user, password or database; or there is no such command,
            or it prints no password.
        BaseException: what `on_wait` raised.
    """

    def connect() -> Session:
        with_its_password = with_password(complete)
        try:
            session = Session.connect(with_its_password, autocommit=True)
        except psycopg.Error as error:
            raise classify_connect_failure(with_its_password, str(error)) from None
        for name in _TEXTS:
            session.adapters.register_loader(name, _Text)
        return session

    session = call_in_background(connect, on_wait=on_wait, discard=Session.close)
    session.on_wait = on_wait
    return session


def can_restrict(version: int) -> bool:
    """Whether a server of this ``server_version_num`` can be restricted to reading tables.

    Source: PostgreSQL release notes, 16.4 (CVE-2024-7348).
    """
    return version >= _RESTRICTS_SINCE.get(version // 10000, 0)


def restrict(connection: psycopg.Connection[Any]) -> None:
    """Restrict a session to tables and PostgreSQL's own relations, if the server can.

    Raises:
        psycopg.Error: the connection is gone.
    """
    if can_restrict(connection.info.server_version):
        connection.execute(_RESTRICT)
