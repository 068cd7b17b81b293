"""Answers by which a registry refuses the gateway, or keeps it waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer

import pytest

from gateway.core.errors import AccessError, FatalError, TransientError
from gateway.sink.registry.registry import Registry
from tests.support.backends.answers import AnsweringHandler, serving
from tests.support.backends.registry_answers import answering_registry


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses_the_user_withholds_a_right(status: int) -> None:
    refusal = b'{"error_code": 40101, "message": "no such user"}'
    with answering_registry(None, {7: (status, refusal)}) as server:
        registry = Registry({"url": server.url})

        with pytest.raises(AccessError, match="no such user") as raised:
            registry.find_text(7)

    assert raised.value.hint is not None and "basic.auth.user.info" in raised.value.hint


def test_a_registry_that_sends_elsewhere_is_named_with_what_to_set() -> None:
    with answering_registry(None, {7: (308, b"moved")}) as server:
        registry = Registry({"url": server.url})

        with pytest.raises(FatalError, match=r"another address \(HTTP 308\)") as raised:
            registry.find_text(7)

    assert raised.value.hint is not None and "registry.url" in raised.value.hint


class Dripping(ThreadingHTTPServer):
    """Answers with a byte now and then, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Drip)
        self.stop = threading.Event()


class _Drip(AnsweringHandler):
    server: Dripping

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.server.stop.wait(0.02):
            self.wfile.write(b" ")


@pytest.mark.parametrize(
    "ask",
    [
        lambda registry: registry.find_text(7),
        lambda registry: registry.check(),
        lambda registry: registry.register("s-value", {"type": "string"}),
        lambda registry: registry.request([("s-value", {"type": "string"})]),
    ],
)
def test_an_answer_that_never_ends_is_given_up(ask: Callable[[Registry], object]) -> None:
    with serving(Dripping()) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        registry = Registry(
            {"url": url, "timeout": 0.1, "max.retries": 0, "retries.max.wait.ms": 1}
        )
        try:
            with pytest.raises(TransientError, match="has not answered in 0 s"):
                ask(registry)
        finally:
            server.stop.set()


def test_an_answer_that_is_a_page_is_shown_in_part() -> None:
    page = b"<html>" + b"maintenance " * 10_000
    with answering_registry(None, {7: (418, page)}) as server:
        registry = Registry({"url": server.url})

        with pytest.raises(FatalError, match=r"maintenance.*\.\.\. \(HTTP 418\)") as raised:
            registry.find_text(7)

    assert len(raised.value.message) < 1000
