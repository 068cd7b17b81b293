"""Errors that Kafka's clients report beside the results of calls, and waits that heed them.

A request to brokers that refuse access only times out: the client tries to log in until then. The
reason reaches nobody but the client's ``error_cb``. Codes are those of librdkafka (below 0) and of
Kafka's protocol, since this package imports no client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

__all__ = ["PATIENCE_S", "LastError", "is_refusal", "wait_for_answer"]

PATIENCE_S: Final = 4.0
"""Seconds for which brokers may refuse authentication: one that starts does not know its users."""

_STEP_S: Final = 0.5
_SSL: Final = -181
_AUTHENTICATION: Final = frozenset(
    {
        -169,  # _AUTHENTICATION
        33,  # UNSUPPORTED_SASL_MECHANISM
        34,  # ILLEGAL_SASL_STATE
        58,  # SASL_AUTHENTICATION_FAILED
    }
)
_SAY_NOTHING: Final = frozenset(
    {
        -187,  # _ALL_BROKERS_DOWN
        -185,  # _TIMED_OUT
        -166,  # _TIMED_OUT_QUEUE
    }
)

_Text: TypeAlias = str  # inside the class, `str` is the method


class _ClientError(Protocol):
    """confluent-kafka's ``KafkaError``."""

    def code(self) -> int: ...

    def str(self) -> _Text: ...


_Error = TypeVar("_Error", bound=_ClientError)


class LastError(Generic[_Error]):
    """Last error of one client that says something; its ``error_cb``, which `poll` calls."""

    def __init__(self) -> None:
        self.last: _Error | None = None

    def __call__(self, error: _Error) -> None:
        """Keep an error."""
        if error.code() not in _SAY_NOTHING:
            self.last = error

    def clear(self) -> None:
        """Forget the error: a call has succeeded since."""
        self.last = None


def is_refusal(error: _ClientError) -> bool:
    """Whether a broker has answered and refuses access, which a retry would not change."""
    if error.code() == _SSL:
        # A handshake can also end because the broker goes down.
        return "verif" in error.str() or "alert" in error.str()
    # The token endpoint may be temporarily unavailable.
    return error.code() in _AUTHENTICATION and "acquire" not in error.str()


def wait_for_answer(
    request: Future[Any],
    poll: Callable[[float], object],
    errors: LastError[_Error],
    timeout_s: float,
) -> _Error | None:
    """Wait for the answer to a request; return the error of brokers that refuse access instead.

    Args:
        request: Request of a client that reports its errors to `errors`.
        poll: The client's function that calls back with errors.
        errors: Last error of its connections.
        timeout_s: Timeout in seconds.

    Returns:
        None: the request is done.

    Raises:
        TimeoutError: there is no answer in time.
    """
    began_at = time.monotonic()
    while not wait([request], _STEP_S).done:
        poll(0)
        passed_s, reported = time.monotonic() - began_at, errors.last
        if reported is not None and is_refusal(reported) and passed_s >= PATIENCE_S:
            return reported
        if passed_s >= timeout_s:
            raise TimeoutError
    return None
