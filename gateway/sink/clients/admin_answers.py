"""Answers to an admin client's requests, which do not wait for brokers that refuse access."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from gateway.sink.clients.client_errors import ErrorCallback
from schemas.kafka_errors import wait_for_answer

__all__ = ["answer"]

_Answer = TypeVar("_Answer")


def answer(
    request: Future[_Answer], admin: AdminClient, errors: ErrorCallback, timeout_s: float
) -> _Answer:
    """Return the answer to `request`.

    Args:
        request: Request of `admin`.
        admin: Client that reports its errors to `errors`.
        errors: Last error of its connections.
        timeout_s: Timeout in seconds.

    Raises:
        KafkaException: the brokers have refused access for a while, or the request has failed.
        TimeoutError: there is no answer in time.
    """
    refused = wait_for_answer(request, admin.poll, errors, timeout_s)
    if refused is not None:
        raise KafkaException(refused)
    answered = request.result()
    # A refusal from before, called back by now, is not why a later request gets no answer.
    admin.poll(0)
    errors.clear()
    return answered
