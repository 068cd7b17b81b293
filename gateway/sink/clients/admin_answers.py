"""Answers to an admin client's requests, which do not wait for brokers that refuse access.

The client itself tries to log in until a request's timeout, and then reports only that.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from gateway.sink.clients.client_errors import PATIENCE_S, ErrorCallback
from gateway.sink.clients.failures import is_refusal

__all__ = ["answer"]

_STEP_S: Final = 0.5

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
    began_at = time.monotonic()
    while not wait([request], _STEP_S).done:
        admin.poll(0)  # calls back with errors
        passed_s, refused = time.monotonic() - began_at, errors.last
        if refused is not None and is_refusal(refused) and passed_s >= PATIENCE_S:
            raise KafkaException(refused)
        if passed_s >= timeout_s:
            raise TimeoutError
    answered = request.result()
    # A refusal from before, called back by now, is not why a later request gets no answer.
    admin.poll(0)
    errors.clear()
    return answered
