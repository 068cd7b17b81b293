"""An HTTP server of few connections, in which the newest client is the one that is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any, Final

__all__ = ["CONNECTIONS", "REQUEST_S", "BoundedServer"]

CONNECTIONS: Final = 32
REQUEST_S: Final = 10.0
"""For so long nothing may come from a client; a handler's `timeout`."""

_PAUSE_S: Final = 1.0


class BoundedServer(ThreadingHTTPServer):
    """A thread for each of at most `CONNECTIONS`; one more closes the oldest one.

    A client that hangs up is no news. Without free descriptors nothing is accepted for a second,
    instead of trying in a busy loop.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open: dict[int, socket.socket] = {}  # by their ids, the oldest first
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
        """Begin a thread for a connection; see `socketserver.ThreadingMixIn`."""
        with self._guard:
            self._open[id(request)] = request
            if len(self._open) > CONNECTIONS:
                oldest = self._open.pop(next(iter(self._open)))
                with contextlib.suppress(OSError):  # its client was faster
                    oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; see `socketserver.TCPServer`."""
        with self._guard:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that is gone; see `socketserver.BaseServer`."""
