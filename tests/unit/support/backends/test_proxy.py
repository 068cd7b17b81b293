"""The proxy that the fault tests break connections with does what it says."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from tests.support.backends.proxy import Proxy
from tests.support.run.waiting import wait_until

DEADLINE_S = 20.0
SILENCE_S = 0.2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(DEADLINE_S)
        yield made


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    with Proxy(listener.getsockname()[1]) as made:
        yield made


@pytest.fixture
def ends(proxy: Proxy, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of one connection: the client's, and the server's."""
    with ExitStack() as stack:
        client = stack.enter_context(connect(proxy))
        server = stack.enter_context(closing(listener.accept()[0]))
        server.settimeout(DEADLINE_S)
        yield client, server


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=DEADLINE_S)


def assert_silent(one: socket.socket) -> None:
    one.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        one.recv(1)
    one.settimeout(DEADLINE_S)


def receive(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := one.recv(size - len(data))):
        data += piece
    return data


Ends = tuple[socket.socket, socket.socket]


def test_what_is_sent_arrives_in_both_directions(ends: Ends) -> None:
    client, server = ends
    client.sendall(b"question")
    assert receive(server, 8) == b"question"
    server.sendall(b"answer")
    assert receive(client, 6) == b"answer"


def test_much_arrives_whole_and_in_order(ends: Ends) -> None:
    client, server = ends
    data = bytes(range(256)) * 40_000
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receive, server, len(data))
        client.sendall(data)
        assert received.result(DEADLINE_S) == data


def test_the_end_of_one_direction_leaves_the_other_open(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    server.sendall(b"still here")
    assert receive(client, 10) == b"still here"
    server.close()
    assert client.recv(1) == b""
    wait_until(lambda: proxy.connections == 0, DEADLINE_S, "the proxy to let go")


def test_frozen_takes_what_is_sent_and_forwards_nothing(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.freeze()
    data = b"x" * (4 << 20)  # more than the kernel's buffers take
    client.sendall(data)
    assert_silent(server)
    proxy.thaw()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(receive, server, len(data)).result(DEADLINE_S) == data


def test_one_direction_freezes_alone(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.freeze("to_client")
    client.sendall(b"one way")
    assert receive(server, 7) == b"one way"
    server.sendall(b"back")
    assert_silent(client)


def test_frozen_holds_the_end_of_a_connection_back(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.freeze()
    client.close()
    assert_silent(server)
    proxy.thaw()
    assert server.recv(1) == b""


def test_frozen_still_accepts(proxy: Proxy, listener: socket.socket) -> None:
    proxy.freeze()
    with connect(proxy) as client, closing(listener.accept()[0]) as server:
        client.sendall(b"hello")
        assert_silent(server)
    assert proxy.accepted == 1


def test_delayed_arrives_later_and_in_order(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.delay(0.3, "to_server")
    started = time.monotonic()
    client.sendall(b"first ")
    client.sendall(b"second")
    assert receive(server, 12) == b"first second"
    assert time.monotonic() - started >= 0.3


def test_reset_is_seen_by_both_sides(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.reset()
    for one in (client, server):
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    assert proxy.connections == 0


def test_refuse_leaves_open_connections_and_ends_with_accept(
    ends: Ends, proxy: Proxy, listener: socket.socket
) -> None:
    client, server = ends
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    client.sendall(b"on")
    assert receive(server, 2) == b"on"
    proxy.accept()
    with connect(proxy) as again, closing(listener.accept()[0]) as accepted:
        again.sendall(b"back")
        assert receive(accepted, 4) == b"back"


def test_a_server_that_is_away_is_a_reset(proxy: Proxy, listener: socket.socket) -> None:
    listener.close()
    # It can come before the client has looked at its new connection.
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


def test_new_connections_go_where_they_are_sent(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(DEADLINE_S)
        proxy.forward_to(other.getsockname()[1])
        with connect(proxy) as client, closing(other.accept()[0]) as server:
            client.sendall(b"x")
            assert receive(server, 1) == b"x"


def test_a_url_leads_through_the_proxy_with_the_rest_as_it_was(proxy: Proxy) -> None:
    assert (
        proxy.through("postgresql://me:secret@127.0.0.1:5432/db?sslmode=disable")
        == f"postgresql://me:secret@127.0.0.1:{proxy.port}/db?sslmode=disable"
    )
