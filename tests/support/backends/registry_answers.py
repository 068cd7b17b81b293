"""A registry of whoever may change it: answers as it is told to, and passes the rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.support.backends.answers import AnsweringHandler, serving

__all__ = ["AnsweringRegistry", "answering_registry", "schema_answer"]


class AnsweringRegistry(ThreadingHTTPServer):
    """Answers requests for schemas by id; those that it has no answer for go to `behind`.

    Without a `behind` the answer to these is an empty list, as of a registry with no subject.

    Attributes:
        answers: Status and body by the schema's id; may be changed at any time.
        asked: Ids that were asked for, in this order.
    """

    def __init__(self, behind: str | None, answers: Mapping[int, tuple[int, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = None if behind is None else behind.rstrip("/")
        self.answers = dict(answers)
        self.asked: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(AnsweringHandler):
    server: AnsweringRegistry

    def do_GET(self) -> None:
        before, _, last = self.path.partition("?")[0].rpartition("/")
        number = int(last) if before.endswith("/ids") and last.isdigit() else None
        if number is not None:
            self.server.asked.append(number)
        if number in self.server.answers:
            status, body = self.server.answers[number]
        else:
            status, body = self._behind()
        self.answer(body, status=status)

    def _behind(self) -> tuple[int, bytes]:
        if self.server.behind is None:
            return 200, b"[]"
        try:
            with urlopen(self.server.behind + self.path) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()


def schema_answer(schema: object) -> tuple[int, bytes]:
    """The answer of a registry that has a schema."""
    return 200, json.dumps({"schema": json.dumps(schema)}).encode()


@contextmanager
def answering_registry(
    behind: str | None, answers: Mapping[int, tuple[int, bytes]]
) -> Iterator[AnsweringRegistry]:
    """Run such a registry."""
    with serving(AnsweringRegistry(behind, answers)) as server:
        yield server
