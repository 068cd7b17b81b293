"""Which failures to connect are refusals, whatever language the server speaks."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from gateway.core.errors import AccessError, FatalError, GatewayError, TransientError
from gateway.source.session.connect_errors import explain_connect_failure
from gateway.source.session.connection import connect


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("28P01", AccessError),  # wrong password
        ("28000", AccessError),  # pg_hba.conf, no such role, role may not log in
        ("3D000", FatalError),  # no such database
        ("42501", AccessError),  # no right to connect, or to replicate
        ("53300", TransientError),  # too many connections
        ("57P03", TransientError),  # starting, stopping or in recovery
        ("57P01", TransientError),
        ("08006", TransientError),
        ("XX000", TransientError),
        (None, TransientError),
    ],
)
def test_the_servers_sqlstate_decides(sqlstate: str | None, kind: type[GatewayError]) -> None:
    error = explain_connect_failure("the server's words", sqlstate)

    assert type(error) is kind
    assert "the server's words" in error.message
    assert error.hint


@pytest.mark.parametrize(
    "text",
    [
        "connection failed: timeout expired",
        "connection timeout expired",
        "server closed the connection unexpectedly",
        "could not receive data from server: Connection reset by peer",
        "SSL SYSCALL error: EOF detected",
        "SSL connection has been closed unexpectedly",
        "SSL error: unexpected eof while reading",
        "could not translate host name",
        "Connection refused",
    ],
)
def test_what_the_network_does_is_never_a_refusal(text: str) -> None:
    assert isinstance(explain_connect_failure(text, None), TransientError)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SSL error: certificate verify failed", AccessError),
        ('server certificate for "a" does not match host name "b"', AccessError),
        ('root certificate file "/x" does not exist', AccessError),
        ("server does not support SSL, but SSL was required", AccessError),
        ("fe_sendauth: no password supplied", AccessError),
        ('invalid sslmode value: "x"', FatalError),
    ],
)
def test_what_libpq_finds_wrong_with_the_settings_is_a_refusal(
    text: str, kind: type[FatalError]
) -> None:
    error = explain_connect_failure(text, None)

    assert type(error) is kind
    assert error.hint


Answer = Callable[[socket.socket, int], None]


@contextlib.contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Answer start-up packets with `answer(connection, number)`; yields the DSN."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    number += 1
                    answer(connection, number)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield (
            f"host=127.0.0.1 port={listener.getsockname()[1]} user=u password=s3cret-pw"
            " sslmode=disable gssencmode=disable connect_timeout=10"
        )
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def refuse(connection: socket.socket, sqlstate: str, message: str) -> None:
    """Send an ErrorResponse as a server with Russian messages does."""
    connection.recv(1000)
    fields = {"S": "ВАЖНО", "V": "FATAL", "C": sqlstate, "M": message, "F": "auth.c"}
    body = b"".join(name.encode() + text.encode() + b"\0" for name, text in fields.items()) + b"\0"
    connection.sendall(b"E" + struct.pack(">I", len(body) + 4) + body)


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [("28P01", AccessError), ("53300", TransientError), ("57P03", TransientError)],
)
def test_a_server_that_speaks_another_language_is_understood(
    sqlstate: str, kind: type[GatewayError]
) -> None:
    with (
        server(lambda connection, _: refuse(connection, sqlstate, "пользователь не прошёл")) as dsn,
        pytest.raises(kind, match="пользователь не прошёл") as caught,
    ):
        connect(dsn)

    assert "s3cret-pw" not in str(caught.value)


def test_a_server_that_was_starting_and_is_back_when_asked_again_may_pass() -> None:
    def start_up(connection: socket.socket, number: int) -> None:
        if number == 1:
            refuse(connection, "57P03", "система баз данных запускается")

    with server(start_up) as dsn, pytest.raises(TransientError, match="запускается"):
        connect(dsn)


def test_a_server_that_says_nothing_is_not_asked_again() -> None:
    asked: list[int] = []
    with (
        server(lambda _, number: asked.append(number)) as dsn,
        pytest.raises(TransientError, match="cannot be reached"),
    ):
        connect(dsn)

    assert asked == [1]
