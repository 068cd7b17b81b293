"""HTTP server with bounded connections, threads, bytes and time.

waitress reads all connections in one thread and hands complete requests to a few others: a slow
client occupies a connection, never a thread. This module adds bounds:

- A connection serves one request.
- There are at most `CONNECTIONS`. One more closes the oldest one: slow clients displace each other,
  and health checks are still answered.
- A connection is closed `REQUEST_S` after it was opened, whatever it has sent or received.
- Without free descriptors nothing is accepted for `PAUSE_S`, which avoids a busy loop.

Source: waitress 3.0, ``server.py``, ``channel.py``, ``wasyncore.py``.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from gateway.observe import event

__all__ = ["CONNECTIONS", "REQUEST_S", "serving"]

CONNECTIONS: Final = 64
REQUEST_S: Final = 10.0
PAUSE_S: Final = 1.0
_HEADER_BYTES: Final = 16 << 10
_BODY_BYTES: Final = 1 << 10
_THREADS: Final = 2
_LOOK_S: Final = 1.0
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNBOUNDED: Final = 1 << 30
_LOG: Final = logging.getLogger(__name__)

# Clients that hang up, and a queue of two requests, are not worth logging.
logging.getLogger("waitress").setLevel(logging.ERROR)


@contextmanager
def serving(application: Callable[..., Any], host: str, port: int) -> Iterator[int]:
    """Serve a WSGI application while the block runs.

    Args:
        application: WSGI application, called in one of a few threads; it must not block.
        host: Host to listen on; IPv6 without brackets.
        port: Port to listen on; 0 for a free one.

    Returns:
        The port.

    Raises:
        OSError: `host` and `port` cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    server = _Server(application, listener)
    thread = threading.Thread(target=server.run, name="pgsluice http", daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.end()
        thread.join()


class _Task(WSGITask):  # type: ignore[misc]
    """Task of a request, whose answer says that the connection will be closed."""

    def build_response_header(self) -> bytes:
        """Return status line and headers; see `WSGITask`."""
        self.set_close_on_finish()
        return bytes(super().build_response_header())


class _Channel(HTTPChannel):  # type: ignore[misc]
    task_class = _Task


class _Server(TcpWSGIServer):  # type: ignore[misc]
    """waitress server with the bounds of this module."""

    channel_class = _Channel

    def __init__(self, application: Callable[..., Any], listener: socket.socket) -> None:
        self._ending = False
        self._deaf_until = 0.0
        # With our own time limit, waitress's limit for idle connections has nothing left to close.
        settings = Adjustments(
            sockets=[listener],
            threads=_THREADS,
            ident="pgsluice",
            connection_limit=_UNBOUNDED,
            channel_timeout=_UNBOUNDED,
            max_request_header_size=_HEADER_BYTES,
            max_request_body_size=_BODY_BYTES,
            # Answers stay in memory: a temporary file would need another descriptor.
            outbuf_overflow=_UNBOUNDED,
            inbuf_overflow=_UNBOUNDED,
            log_socket_errors=False,
        )
        address = listener.getsockname()
        super().__init__(
            application,
            _sock=listener,
            adj=settings,
            bind_socket=False,
            sockinfo=(listener.family, listener.type, listener.proto, address),
        )

    def run(self) -> None:
        """Serve until `end`."""
        while not self._ending:
            try:
                wasyncore.loop(timeout=_LOOK_S, use_poll=True, map=self._map, count=1)
            except OSError as error:  # poll itself may be out of resources, too
                event(_LOG, logging.WARNING, "[http] cannot wait for clients", error=error.strerror)
                time.sleep(PAUSE_S)
            self._close_overdue(time.time())
        self.task_dispatcher.shutdown()
        wasyncore.close_all(self._map, ignore_all=True)

    def end(self) -> None:
        """Make `run` return; may be called from any thread."""
        self._ending = True
        self.pull_trigger()

    def readable(self) -> bool:
        """Whether a connection may be accepted; see `wasyncore.dispatcher`."""
        return time.monotonic() >= self._deaf_until

    def handle_accept(self) -> None:
        """Accept one connection, and close the oldest one when there are too many."""
        try:
            accepted = self.accept()
        except OSError as error:
            if error.errno in _OUT_OF_DESCRIPTORS:
                self._deaf_until = time.monotonic() + PAUSE_S
                event(
                    _LOG,
                    logging.WARNING,
                    "[http] accepts no connections: no free file descriptors",
                    error=error.strerror,
                )
                self._close_oldest()
            return
        if accepted is not None:
            connection, address = accepted
            self.channel_class(self, connection, address, self.adj, map=self._map)
            if len(self.active_channels) > CONNECTIONS:
                self._close_oldest()

    def _close_oldest(self) -> None:
        if self.active_channels:
            # A connection whose request is complete is about to be answered.
            min(
                self.active_channels.values(), key=lambda c: (bool(c.requests), c.creation_time)
            ).handle_close()

    def _close_overdue(self, now: float) -> None:
        for channel in list(self.active_channels.values()):
            # This also covers a clock that was set back: no connection outlives the limit.
            if not 0 <= now - channel.creation_time <= REQUEST_S:
                channel.handle_close()
