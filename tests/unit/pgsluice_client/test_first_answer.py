"""Brokers that do not answer a reader's first request, and what the reader says of them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Self

import pytest

from pgsluice_client import Reader, ReadError, UnavailableError
from schemas import kafka_errors

METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
_VERSIONS: Final = {METADATA: 11, SASL_HANDSHAKE: 1, API_VERSIONS: 3, SASL_AUTHENTICATE: 1}
"""Newest versions of the requests that a broker here knows."""
_WRONG_PASSWORD: Final = 58
_PLAIN: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "p",
}


class Broker:
    """A broker that closes connections at one kind of request, and accepts no password.

    Args:
        closes_at: Kind of request at which it closes a connection without an answer.
        ends: Whether it also accepts no connection from then on.
    """

    def __init__(self, closes_at: int, *, ends: bool = False) -> None:
        self._closes_at = closes_at
        self._ends = ends
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.properties = {"bootstrap.servers": f"127.0.0.1:{self._socket.getsockname()[1]}"}

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_listening()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _stop_listening(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as requests:
            while size := requests.read(4):
                request = requests.read(struct.unpack(">i", size)[0])
                kind, version, number = struct.unpack(">hhi", request[:8])
                if kind == self._closes_at:
                    if self._ends:
                        self._stop_listening()
                    return
                answer = struct.pack(">i", number) + _answer(kind, version)
                connection.sendall(struct.pack(">i", len(answer)) + answer)


def _answer(kind: int, version: int) -> bytes:
    if kind == SASL_HANDSHAKE:
        return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    if kind == SASL_AUTHENTICATE:
        return struct.pack(">hh2siq", _WRONG_PASSWORD, 2, b"no", 0, 0)
    assert kind == API_VERSIONS
    known = [struct.pack(">hhh", one, 0, newest) for one, newest in _VERSIONS.items()]
    if version < 3:
        return struct.pack(">hi", 0, len(known)) + b"".join(known)
    return struct.pack(">hB", 0, len(known) + 1) + b"\0".join(known) + b"\0\0\0\0\0\0"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_errors, "PATIENCE_S", 1.0)
    monkeypatch.setattr("pgsluice_client.reader.PATIENCE_S", 1.0)
    monkeypatch.setattr("pgsluice_client.reader._ANSWER_S", 0.3)
    monkeypatch.setattr("pgsluice_client.reader._REQUEST_S", 60.0)


@pytest.fixture
def short_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgsluice_client.reader._REQUEST_S", 4.0)


def errors_of(
    broker: Broker, kafka: dict[str, Any] | None = None, calls: int = 2
) -> Iterator[ReadError]:
    """The errors of some calls of a reader."""
    with Reader("s", {**broker.properties, **(kafka or {})}, {"url": "http://x"}) as reader:
        for _ in range(calls):
            with pytest.raises(ReadError) as raised:
                reader.poll()
            yield raised.value


def test_brokers_that_close_connections_are_said_to() -> None:
    with Broker(METADATA) as broker:
        for error in errors_of(broker):
            assert isinstance(error, UnavailableError)
            assert error.message == "Kafka closes connections without an answer"
            assert "sasl.password" in (error.hint or "")
            assert "are the brokers up" in (error.hint or "")


@pytest.mark.usefixtures("short_request")
def test_a_broker_that_goes_down_while_a_reader_logs_in_refuses_nobody() -> None:
    with Broker(SASL_HANDSHAKE, ends=True) as broker:
        for error in errors_of(broker, _PLAIN, calls=1):
            assert isinstance(error, UnavailableError)
            assert "does not answer: " in error.message
            assert "Connection refused" in error.message


@pytest.mark.usefixtures("short_request")
def test_a_broker_that_closes_connections_at_each_login_may_come_up() -> None:
    with Broker(SASL_HANDSHAKE) as broker:
        for error in errors_of(broker, _PLAIN, calls=1):
            assert isinstance(error, UnavailableError)
            assert "handshake failed: Local: " in error.message


def test_a_wrong_password_is_a_refusal_that_stays() -> None:
    with Broker(METADATA) as broker:
        for error in errors_of(broker, _PLAIN):
            assert type(error) is ReadError
            assert "refuses access: " in error.message
            assert "SASL authentication error" in error.message
