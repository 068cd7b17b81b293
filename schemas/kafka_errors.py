"""Errors that Kafka's clients report beside the results of calls, and waits that heed them.

A request to brokers that refuse access only times out: the client tries to log in until then. The
reason reaches nobody but the client's ``error_cb``. Codes are those of librdkafka (below 0) and of
Kafka's protocol, since this package imports no client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

__all__ = [
    "FIRST_ANSWER_S",
    "PATIENCE_S",
    "LastError",
    "is_lost_connection",
    "is_refusal",
    "wait_for_answer",
]

PATIENCE_S: Final = 4.0
"""Seconds for which a broker may refuse access: one that starts does not know its users."""

FIRST_ANSWER_S: Final = 0.5
"""Seconds for the first of several calls: only after it are errors known, and refusals counted."""

_STEP_S: Final = 0.5
_SSL: Final = -181
_TRANSPORT: Final = -195
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

_NO_ANSWER: Final = ("acquire", "failed: Local: ")
"""Texts of errors of authentication that are not a broker's: a token endpoint may be unavailable,
and a connection may end before the broker answers."""
_LOST: Final = ("Disconnected", "Receive failed", "Send failed", "reset by peer")
_BROKER: Final = re.compile(r"(?:\w+://)?([^\s/]+)(?:/\w+)?: ")
"""Beginning of an error's text: protocol, address and, after ``/``, number of the broker."""

_Text: TypeAlias = str  # inside the class, `str` is the method


class _ClientError(Protocol):
    """confluent-kafka's ``KafkaError``."""

    def code(self) -> int: ...

    def str(self) -> _Text: ...


_Error = TypeVar("_Error", bound=_ClientError)


@dataclass(slots=True)
class _Row(Generic[_Error]):
    """Refusals of one broker in a row.

    Attributes:
        since: Time of the first one.
        error: The first one.
        ended_at: Time of the first other error after the last one; None if there is none.
    """

    since: float
    error: _Error
    ended_at: float | None = None


class LastError(Generic[_Error]):
    """Last error of one client that says something; its ``error_cb``, which `poll` calls."""

    def __init__(self) -> None:
        self.last: _Error | None = None
        # By broker: one that is down beside one that refuses access ends no row of the other's.
        self._rows: dict[str, _Row[_Error]] = {}

    def __call__(self, error: _Error) -> None:
        """Keep an error."""
        if error.code() in _SAY_NOTHING:
            return
        self.last, now = error, time.monotonic()
        named = _BROKER.match(error.str())
        broker = "" if named is None else named[1]
        row = self._rows.get(broker)
        if is_refusal(error):
            # A name with several addresses, as localhost has, may be down at one and refuse access
            # at another: they are tried in turn.
            if row is not None and (row.ended_at is None or now - row.ended_at < PATIENCE_S):
                row.ended_at = None
            else:
                self._rows[broker] = _Row(now, error)
        elif named is None:
            self._rows.clear()
        elif row is not None and row.ended_at is None and not is_lost_connection(error):
            row.ended_at = now  # a lost connection ends none: brokers close those that they refuse

    def refusal(self) -> _Error | None:
        """Return the error of a broker that has refused access for `PATIENCE_S`; None: none has.

        Only refusals in a row count, without errors in between that say something else, unless the
        broker refuses access again within `PATIENCE_S`.
        """
        due = time.monotonic() - PATIENCE_S
        rows = self._rows.values()
        return next((one.error for one in rows if one.ended_at is None and one.since <= due), None)

    def clear(self) -> None:
        """Forget all errors: a call has succeeded since."""
        self.last = None
        self._rows.clear()


def is_refusal(error: _ClientError) -> bool:
    """Whether a broker has answered and refuses access, which a retry would not change."""
    if error.code() == _SSL:
        # A handshake can also end because the broker goes down.
        return "verif" in error.str() or "alert" in error.str()
    return error.code() in _AUTHENTICATION and not any(text in error.str() for text in _NO_ANSWER)


def is_lost_connection(error: _ClientError) -> bool:
    """Whether a connection that was open has ended, which says nothing of the reason."""
    return error.code() == _TRANSPORT and any(text in error.str() for text in _LOST)


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
        passed_s = time.monotonic() - began_at
        # A refusal may be from before the request, which gets some time of its own to log in.
        if passed_s >= PATIENCE_S and (refusal := errors.refusal()) is not None:
            return refusal
        if passed_s >= timeout_s:
            raise TimeoutError
    return None
