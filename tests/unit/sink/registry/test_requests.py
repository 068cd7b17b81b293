"""Requests of several threads for the ids of schemas."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gateway.sink.registry.registry import Registry
from tests.support.run.waiting import wait_until

SCHEMA = {"type": "record", "name": "Key", "fields": []}


class SlowRegistry(ThreadingHTTPServer):
    """Answers the first registration when it may, and later ones at once.

    Attributes:
        registrations: Subjects' paths of all registrations, in the order of their requests.
        may_answer: Set to let it answer.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.registrations: list[str] = []
        self.may_answer = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: SlowRegistry

    def do_GET(self) -> None:
        self._answer({"compatibilityLevel": "BACKWARD"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.registrations.append(self.path)
        if len(self.server.registrations) == 1:
            self.server.may_answer.wait(60)
        self._answer({"id": 7})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_first_row_waits_for_a_request_under_way_and_does_not_ask_beside_it() -> None:
    with SlowRegistry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        registry = Registry(
            {"url": f"http://127.0.0.1:{server.server_port}"}, on_wait=server.may_answer.set
        )
        try:
            registry.request_later([("t-key", SCHEMA)])
            wait_until(lambda: bool(server.registrations), 60, "a request")

            assert registry.register("t-key", SCHEMA) == 7
            assert len(server.registrations) == 1
        finally:
            server.may_answer.set()
            registry.close()
            server.shutdown()
            thread.join()
