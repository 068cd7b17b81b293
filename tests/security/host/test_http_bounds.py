"""Clients of ``[http]`` that are slow, large, misled or gone."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from devkit.embedded.processes import free_port
from gateway.monitor.hosts import is_own_host
from gateway.monitor.http_server import CONNECTIONS, REQUEST_S
from spark_consumer.observe import bounded_http as spark_http
from spark_consumer.observe.figures import Figures
from spark_consumer.observe.health import Pulse
from spark_consumer.observe.server import serve
from tests.support.gateway.process import GatewayProcess, GatewayProject
from tests.support.run.waiting import PATIENCE, wait_until

SLOW = 300
ANSWER_S = 15.0 * PATIENCE
PAUSE_S = 3.0


class Monitored:
    """A gateway without servers to talk to; its endpoints answer all the same."""

    def __init__(self, folder: Path) -> None:
        self.port, nowhere = free_port(), free_port()
        self.process: GatewayProcess = GatewayProject(
            folder,
            f"postgresql://nobody@127.0.0.1:{nowhere}/x",
            f"127.0.0.1:{nowhere}",
            f"http://127.0.0.1:{nowhere}",
            "bounds",
            "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;",
            {"http": {"listen": f"127.0.0.1:{self.port}", "hosts": ["gateway.example"]}},
        ).start()
        wait_until(lambda: self.health() == 200, 60, "the endpoints to answer")

    def request(self, path: str = "/healthz", *, method: str = "GET", **headers: str) -> int:
        """Return the status code; 0 when there is no answer in time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def health(self) -> int:
        """Return the status code of ``/healthz``."""
        return self.request()

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S)

    def descriptors(self) -> int:
        """Return how many descriptors the gateway has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the gateway has used."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[Monitored]:
    made = Monitored(tmp_path)
    try:
        yield made
    finally:
        made.process.close()


def test_slow_clients_neither_take_the_descriptors_nor_the_answers(monitored: Monitored) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * SLOW)), hard))
    before, used = monitored.descriptors(), monitored.cpu_s()
    begun = time.monotonic()
    slow: list[socket.socket] = []
    with contextlib.ExitStack() as stack:

        def answers_beside_them() -> bool:
            """Whether the answer came while slow clients were connected, not after their time."""
            slow[:] = [stack.enter_context(monitored.connect()) for _ in range(SLOW)]
            for each in slow:
                with contextlib.suppress(OSError):  # the oldest ones are closed already
                    each.send(b"GET /healthz HT")
            assert monitored.health() == 200
            connected = monitored.descriptors() - before
            assert connected <= CONNECTIONS + 4
            if connected > CONNECTIONS // 2:
                return True
            stack.pop_all().close()
            return False

        wait_until(answers_beside_them, 60, "an answer while slow clients are connected")

        def all_closed() -> bool:
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(b"x")  # one byte now and then is what keeps a slow request alive
            assert monitored.health() == 200
            return monitored.descriptors() <= before + 4

        wait_until(all_closed, REQUEST_S + 20, "the slow connections to be closed")
    # Some 300 connections are a moment's work; a loop around accept takes all the time there is.
    assert monitored.cpu_s() - used < max(3.0, (time.monotonic() - begun) / 3)
    assert monitored.process.terminate() == 0


def test_no_descriptor_left_is_a_pause_and_no_end(monitored: Monitored) -> None:
    pid = monitored.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    first_free = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
    used, begun = monitored.cpu_s(), time.monotonic()
    with monitored.connect(), monitored.connect():
        wait_until(lambda: time.monotonic() - begun > PAUSE_S, 10, "some time without descriptors")
        assert monitored.cpu_s() - used < (time.monotonic() - begun) / 2
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: monitored.health() == 200, 30, "answers with descriptors")
    assert monitored.process.terminate() == 0
    assert "Traceback" not in monitored.process.log()


def test_large_misled_and_vanished_clients_get_an_error_and_no_traceback(
    monitored: Monitored,
) -> None:
    assert monitored.request(**{"X-Flood": "x" * (64 << 10)}) == 431
    assert monitored.request("/status", Host="attacker.example") == 421
    assert monitored.request("/status", Host="gateway.example:9187") == 200
    assert monitored.request("/status", Host=f"localhost:{monitored.port}") == 200
    assert monitored.request("/", method="POST") == 405
    assert monitored.request("/", method="HEAD") == 200
    assert monitored.request("/nothing") == 404
    for part in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        for _ in range(20):
            with monitored.connect() as gone:
                gone.sendall(part)
                # Linger of no seconds: the connection is reset, not closed.
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert monitored.health() == 200
    assert monitored.process.terminate() == 0
    assert "Traceback" not in monitored.process.log()
    assert "attacker.example" not in monitored.process.log()


def ask_job(port: int | None, request: bytes, *, end: bool = False) -> bytes:
    """What the Spark job's endpoint answers to some bytes; `end`: after which nothing comes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port or 0), timeout=30) as connection:
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while read := connection.recv(65536):
                answer += read
    return answer


def test_slow_clients_of_the_spark_job_leave_it_its_answers(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_http, "REQUEST_S", 10 * ANSWER_S)
    threads = threading.active_count()
    with contextlib.ExitStack() as stack, serve("127.0.0.1:0", (), {}, Pulse()) as port:

        def connect_slowly() -> list[socket.socket]:
            made = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port or 0), ANSWER_S))
                for _ in range(100)
            ]
            for each in made:
                with contextlib.suppress(OSError):
                    each.send(b"GET /metrics HTTP/1.1\r\nX: ")
            return made

        connect_slowly()
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_S) as answer:
            assert answer.status == 200
        bound = threads + spark_http.CONNECTIONS + 1
        wait_until(lambda: threading.active_count() <= bound, 10, "threads to end")
        # These take the places of the others, and have less time.
        monkeypatch.setattr(spark_http, "REQUEST_S", 1.0)
        slow = connect_slowly()

        def all_closed() -> bool:
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(b"x")  # one byte now and then is what keeps a slow request alive
            return threading.active_count() <= threads + 1

        wait_until(all_closed, 10, "the slow connections to be closed")
    assert "Traceback" not in capfd.readouterr().err


def test_large_misled_and_vanished_clients_of_the_spark_job_get_an_error_and_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    figures = {"s\x1b[31m": Figures(held="evil\x1b[2J\rtext")}
    with serve("127.0.0.1:0", ("consumer.example",), figures, Pulse()) as port:

        def status(head: str) -> int:
            return int(ask_job(port, head.encode() + b"\r\n\r\n").split()[1])

        for host in ("localhost", f"127.0.0.1:{port}", "Consumer.Example:1", "[::1]:80"):
            assert status(f"GET /metrics HTTP/1.1\r\nHost: {host}") == 200, host
        for host in ("attacker.example", "consumer.example.attacker.example", ""):
            assert status(f"GET /metrics HTTP/1.1\r\nHost: {host}") == 421, host
        assert status("GET /metrics HTTP/1.1") == 200
        assert status(f"GET /metrics HTTP/1.1\r\nX: {'x' * (32 << 10)}") == 431
        assert status("GET /metrics HTTP/1.1" + "\r\nX: y" * 5000) == 431
        assert status(f"GET /{'x' * (32 << 10)} HTTP/1.1") in (414, 431)
        assert status("POST /metrics HTTP/1.1") in (405, 501)
        assert ask_job(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        for part in (b"", b"GET / HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"):
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port or 0)) as gone:
                    gone.sendall(part)
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ready = ask_job(port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        metrics = ask_job(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = ask_job(port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert ready.startswith(b"HTTP/1.0 503 ")
    assert rb"subscription s\u001b[31m is held: evil\u001b[2J\rtext" in ready
    assert b"\x1b" not in metrics and rb'subscription="s\\u001b[31m"' in metrics
    assert head.startswith(b"HTTP/1.0 200 ") and head.endswith(b"\r\n\r\n")
    assert b"nosniff" in head and b"Python" not in head
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("header", "own"),
    [
        (None, True),
        ("127.0.0.1:9187", True),
        ("[::1]:9187", True),
        ("10.1.2.3", True),
        ("localhost", True),
        ("LOCALHOST.:9187", True),
        ("a.localhost", True),
        ("Gateway.Example:1", True),
        ("gateway.example.attacker.example", False),
        ("attacker.example:9187", False),
        ("127.0.0.1.attacker.example", False),
        ("localhost.attacker.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_names_that_are_ours(header: str | None, own: bool) -> None:
    for check in (is_own_host, spark_http.is_own_host):
        assert check(header, {"gateway.example"}) is own
        assert check(header, {"*"})
