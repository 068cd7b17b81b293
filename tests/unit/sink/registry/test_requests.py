"""Requests of several threads for the ids of schemas."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer

from gateway.sink.registry.registry import Registry
from tests.support.backends.answers import AnsweringHandler, serving
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


class _Handler(AnsweringHandler):
    server: SlowRegistry

    def do_GET(self) -> None:
        self.answer_json({"compatibilityLevel": "BACKWARD"})

    def do_POST(self) -> None:
        self.read_body()
        self.server.registrations.append(self.path)
        if len(self.server.registrations) == 1:
            self.server.may_answer.wait(60)
        self.answer_json({"id": 7})


def test_a_first_row_waits_for_a_request_under_way_and_does_not_ask_beside_it() -> None:
    with serving(SlowRegistry()) as server:
        registry = Registry(
            {"url": f"http://127.0.0.1:{server.server_port}"}, on_wait=server.may_answer.set
        )
        try:
            registry.request_later([("t-key", SCHEMA)])
            registry.send_later()
            wait_until(lambda: bool(server.registrations), 60, "a request")

            assert registry.register("t-key", SCHEMA) == 7
            assert len(server.registrations) == 1
        finally:
            server.may_answer.set()
            registry.close()
