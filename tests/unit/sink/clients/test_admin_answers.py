"""Answers of an admin client, and the refusals that explain why there is none."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from devkit.embedded.processes import free_port
from gateway.sink.clients.admin_answers import answer
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.properties import admin_properties, make_client


@pytest.fixture
def refused() -> ErrorCallback:
    errors = ErrorCallback()
    errors(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))
    return errors


def test_a_refusal_does_not_explain_what_comes_after_an_answer(refused: ErrorCallback) -> None:
    request: Future[str] = Future()
    request.set_result("topics")

    assert answer(request, AdminClient({}), refused, 1.0) == "topics"
    assert refused.last is None


def test_nor_does_one_of_which_nobody_has_heard_until_the_answer() -> None:
    heard: list[int] = []

    class Heard(ErrorCallback):
        def __call__(self, error: KafkaError) -> None:
            super().__call__(error)
            heard.append(error.code())

    errors = Heard()
    properties = admin_properties({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    admin = make_client(AdminClient, properties, errors)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1.0)  # calls nobody back
    assert not heard
    request: Future[str] = Future()
    request.set_result("topics")

    answer(request, admin, errors, 1.0)
    assert KafkaError._TRANSPORT in heard
    assert errors.last is None


def test_a_refusal_explains_a_request_that_failed_after_it(refused: ErrorCallback) -> None:
    request: Future[str] = Future()
    request.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))

    with pytest.raises(KafkaException):
        answer(request, AdminClient({}), refused, 1.0)
    assert refused.last is not None
