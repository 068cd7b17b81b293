"""HTTP servers of tests, as small as their answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

__all__ = ["AnsweringHandler", "serving"]

_Server = TypeVar("_Server", bound=ThreadingHTTPServer)


class AnsweringHandler(BaseHTTPRequestHandler):
    """Handler of requests that answers whole bodies, and logs nothing."""

    def answer(self, body: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        """Send a body of media type `kind`."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, content: object) -> None:
        """Send a value as JSON."""
        self.answer(json.dumps(content).encode())

    def read_body(self) -> bytes:
        """Read the body of a request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """Answer requests in a thread for as long as the block lasts."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
