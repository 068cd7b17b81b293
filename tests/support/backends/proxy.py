"""A TCP proxy on loopback that fails the way networks do: it freezes, delays, resets and refuses.

A frozen direction forwards nothing, and the proxy goes on reading, so that the sender's TCP gets
its acknowledgements and has no reason to complain; ends of connections are held back as well. That
is what a dead NAT entry or a hung load balancer looks like. Bytes that were held back go on at
`thaw`.

One thread owns all sockets; every method hands it a piece of work and returns when that is done.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Direction = Literal["to_server", "to_client"]
BOTH: tuple[Direction, ...] = ("to_server", "to_client")

_HOST = "127.0.0.1"
_PIECE = 1 << 16
_MOST_HELD = 64 << 20
"""Beyond this much in one direction of one connection, the proxy stops reading."""


@dataclass(eq=False)
class _Pipe:
    """One direction of one connection: what was read, and when it may go on."""

    direction: Direction
    source: socket.socket
    target: socket.socket
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    size: int = 0
    ended: bool = False
    done: bool = False


@dataclass(eq=False)
class _Link:
    """One connection: its two sockets and its two directions."""

    client: socket.socket
    server: socket.socket
    pipes: tuple[_Pipe, ...]


class Proxy:
    """Forwards a port of its own on 127.0.0.1 to a server; use it with `with`, or `close` it.

    Args:
        server: Its port on 127.0.0.1, or a URL that has it; see `forward_to`.
    """

    def __init__(self, server: int | str = 0) -> None:
        self._server_port = _port_of(server)
        self._listener = socket.create_server((_HOST, 0))
        self._refusing = False
        #: Port that clients connect to; the same for as long as the proxy lives.
        self.port: int = self._listener.getsockname()[1]
        #: Connections accepted so far.
        self.accepted = 0
        #: Bytes read so far, by where they go.
        self.read: dict[Direction, int] = dict.fromkeys(BOTH, 0)
        self._links: list[_Link] = []
        self._frozen: set[Direction] = set()
        self._delay_s: dict[Direction, float] = dict.fromkeys(BOTH, 0.0)
        self._work: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._wake, self._waked = socket.socketpair()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def through(self, url: str) -> str:
        """Put this proxy's address into the URL, or connection URI, of a server."""
        split = urlsplit(url)
        user, at, _ = split.netloc.rpartition("@")
        return urlunsplit(split._replace(netloc=f"{user}{at}{_HOST}:{self.port}"))

    def forward_to(self, server: int | str) -> None:
        """Send connections that come from now on to another server."""
        self._server_port = _port_of(server)

    def freeze(self, *directions: Direction) -> None:
        """Forward nothing in these directions, or in neither; connections are still accepted."""
        self._do(lambda: self._frozen.update(directions or BOTH))

    def thaw(self) -> None:
        """Forward what was held back, and go on."""
        self._do(self._frozen.clear)

    def delay(self, seconds: float, *directions: Direction) -> None:
        """Let whatever is read from now on wait for so long; 0 ends it."""
        self._do(lambda: self._delay_s.update(dict.fromkeys(directions or BOTH, seconds)))

    def reset(self) -> None:
        """End every open connection with RST, to both sides."""
        self._do(self._reset)

    def refuse(self) -> None:
        """Refuse new connections, as a host on which nobody listens; open ones go on."""
        self._do(self._refuse)

    def accept(self) -> None:
        """Accept connections again after `refuse`."""
        self._do(self._accept_again)

    def close(self) -> None:
        """Reset what is open and give the port back."""
        if not self._closed:
            self._do(self._close)
            self._thread.join()

    def _do(self, work: Callable[[], None]) -> None:
        finished: Future[None] = Future()
        self._work.append((work, finished))
        self._wake.send(b"!")
        finished.result(timeout=30)

    # The thread

    def _run(self) -> None:
        while not self._closed:
            now = time.monotonic()
            writable = {p.target: p for p in self._pipes() if self._is_due(p, now)}
            readable = {p.source: p for p in self._pipes() if not p.ended and p.size < _MOST_HELD}
            listening = [] if self._refusing else [self._listener]
            can_read, can_write, _ = select.select(
                [*readable, *listening, self._waked], list(writable), [], self._until_due(now)
            )
            for one in can_write:
                self._forward(writable[one])
            for one in can_read:
                if one in readable:
                    self._take(readable[one])
                elif one is self._listener:
                    self._accept_one(one)
            if self._waked in can_read:
                self._work_off()

    def _pipes(self) -> Iterator[_Pipe]:
        return (pipe for link in self._links for pipe in link.pipes if not pipe.done)

    def _is_due(self, pipe: _Pipe, now: float) -> bool:
        return pipe.direction not in self._frozen and bool(pipe.held) and pipe.held[0][0] <= now

    def _until_due(self, now: float) -> float | None:
        due = [p.held[0][0] for p in self._pipes() if p.held and p.direction not in self._frozen]
        return max(0.0, min(due) - now) if due else None

    def _take(self, pipe: _Pipe) -> None:
        """Read once; an empty piece stands for the end, which waits like everything else."""
        if pipe.done:  # its link was dropped in this very turn
            return
        data = b""
        with contextlib.suppress(OSError):  # reset by its sender: that is an end, too
            data = pipe.source.recv(_PIECE)
        pipe.ended = not data
        pipe.size += len(data)
        self.read[pipe.direction] += len(data)
        pipe.held.append((time.monotonic() + self._delay_s[pipe.direction], data))

    def _forward(self, pipe: _Pipe) -> None:
        if pipe.done:  # its link was dropped in this very turn
            return
        due, data = pipe.held.popleft()
        try:
            if data:
                sent = pipe.target.send(data)
                pipe.size -= sent
                if sent < len(data):
                    pipe.held.appendleft((due, data[sent:]))
                return
            pipe.target.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(pipe)
            return
        pipe.done = True
        if all(p.done for p in self._link_of(pipe).pipes):
            self._drop(pipe)

    def _link_of(self, pipe: _Pipe) -> _Link:
        return next(link for link in self._links if pipe in link.pipes)

    def _drop(self, pipe: _Pipe) -> None:
        link = self._link_of(pipe)
        self._links.remove(link)
        _end(link)

    def _accept_one(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self.accepted += 1
        try:
            server = socket.create_connection((_HOST, self._server_port), timeout=10)
        except OSError:
            _close_with_reset(client)
            return
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipes = (_Pipe("to_server", client, server), _Pipe("to_client", server, client))
        self._links.append(_Link(client, server, pipes))

    def _work_off(self) -> None:
        self._waked.recv(_PIECE)
        while self._work:
            work, finished = self._work.popleft()
            try:
                work()
            except OSError as error:
                finished.set_exception(error)
            else:
                finished.set_result(None)

    def _reset(self) -> None:
        for link in self._links:
            _close_with_reset(link.client)
            _close_with_reset(link.server)
            _end(link)
        self._links.clear()

    def _refuse(self) -> None:
        if not self._refusing:
            self._refusing = True
            self._listener.close()
            # Bound but not listening: connections are refused, and the port stays ours.
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((_HOST, self.port))

    def _accept_again(self) -> None:
        if self._refusing:
            self._listener.listen()
            self._refusing = False

    def _close(self) -> None:
        self._reset()
        for one in (self._listener, self._wake, self._waked):
            one.close()
        self._closed = True


def _port_of(server: int | str) -> int:
    port = server if isinstance(server, int) else urlsplit(server).port
    assert port is not None, "the URL has no port"
    return port


def _end(link: _Link) -> None:
    for pipe in link.pipes:
        pipe.done = True
    link.client.close()
    link.server.close()


def _close_with_reset(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
