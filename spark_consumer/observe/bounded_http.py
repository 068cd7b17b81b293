"""An HTTP server whose connections, bytes and time are bounded.

A thread serves each of at most `CONNECTIONS` clients; one more closes the oldest one, so that the
newest client is the one that is answered. A connection is for one request, of at most
`HEADER_BYTES`, and ends `REQUEST_S` after it was made, whatever it has sent or read until then.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any, Final

__all__ = ["CONNECTIONS", "HEADER_BYTES", "BoundedServer", "answering", "is_own_host"]

CONNECTIONS: Final = 32
HEADER_BYTES: Final = 16 << 10
REQUEST_S = 10.0
_PAUSE_S: Final = 1.0
_ANY: Final = "*"


class BoundedServer(ThreadingHTTPServer):
    """See the module. Disconnected clients are not logged.

    Without free descriptors nothing is accepted for a second, which avoids a busy loop.
    """

    daemon_threads = True
    block_on_close = False
    # Where more clients come at once than the system holds for us, they wait for seconds.
    request_queue_size = 2 * CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # By their ids, the oldest first; with the time at which they have to end.
        self._open: dict[int, tuple[socket.socket, float]] = {}
        self._guard = threading.Lock()
        super().__init__(*args, **kwargs)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; see `socketserver.TCPServer`."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection; see `socketserver.ThreadingMixIn`."""
        with self._guard:
            self._open[id(request)] = request, time.monotonic() + REQUEST_S
            if len(self._open) > CONNECTIONS:
                _hang_up(self._open.pop(next(iter(self._open)))[0])
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close overdue connections, twice a second; see `socketserver.BaseServer`."""
        now = time.monotonic()
        with self._guard:
            for key, (connection, end) in list(self._open.items()):
                if now > end:
                    del self._open[key]
                    _hang_up(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; see `socketserver.TCPServer`."""
        with self._guard:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a disconnected client; see `socketserver.BaseServer`."""


def _hang_up(connection: socket.socket) -> None:
    """Shut a connection down, which unblocks its thread."""
    with contextlib.suppress(OSError):  # its client was faster
        connection.shutdown(socket.SHUT_RDWR)


class _Head:
    """Request line and headers, bounded by `HEADER_BYTES`."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self.left = HEADER_BYTES

    def readline(self, limit: int) -> bytes:
        """Return a line, truncated at the bound; an empty one after that."""
        line = self._file.readline(min(limit, self.left))
        self.left -= len(line)
        return line

    def close(self) -> None:
        """Close the file; see `socketserver.StreamRequestHandler`."""
        self._file.close()


def answering(
    answer: Callable[[str], tuple[int, str]], content: str, own_hosts: Collection[str]
) -> type[BaseHTTPRequestHandler]:
    """Return a handler of GET and HEAD.

    Args:
        answer: Function from a path to status code and text.
        content: Content type.
        own_hosts: Names that are answered; see `is_own_host`.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S
        error_content_type = "text/plain; charset=utf-8"
        error_message_format = "%(code)d %(message)s\n"

        raw_requestline: bytes

        def setup(self) -> None:
            super().setup()
            self.head = _Head(self.rfile)
            self.rfile = self.head  # type: ignore[assignment]

        def version_string(self) -> str:
            return "pgsluice"

        def parse_request(self) -> bool:
            # Cut off where too much came: then it would be taken for HTTP/0.9.
            whole = self.raw_requestline.endswith(b"\n")
            if whole and not super().parse_request():
                return False
            if self.head.left <= 0 or not whole:
                self.requestline, self.command, self.request_version = "", "GET", "HTTP/1.0"
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return False
            if not is_own_host(self.headers.get("Host"), own_hosts):
                self._send(
                    HTTPStatus.MISDIRECTED_REQUEST, "this name is not one of metrics_hosts\n"
                )
                return False
            return True

        def do_GET(self) -> None:
            self._send(*answer(self.path.partition("?")[0]))

        do_HEAD = do_GET

        def _send(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: scrapes are frequent."""

    return Handler


def is_own_host(header: str | None, own: Collection[str]) -> bool:
    """Whether a request with this Host header is for us: the guard against DNS rebinding.

    A foreign page can have its own name resolve to this machine. The browser sends that name as
    Host. Requests are answered under own names and addresses only: no other site can use those.

    Args:
        header: Value of the header, with or without a port; None if it was absent, as in HTTP/1.0,
            which no browser speaks.
        own: Names besides localhost; ``*`` stands for all.
    """
    if header is None or _ANY in own:
        return True
    text = header.strip()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {each.lower().rstrip(".") for each in own}
    return True
