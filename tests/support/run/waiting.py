"""Wait for what another process does: by looking, with a deadline, never by a fixed sleep."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

from tests.support.run import environment

PATIENCE: Final = 4
"""A deadline is there to end what hangs. Each is ample on a machine that does nothing else; a busy
one may take so many times as long before a test fails."""

_Answer = TypeVar("_Answer")


class Witness(Protocol):
    """Something that may know why what is waited for does not happen."""

    def account(self) -> str:
        """Return what it knows; empty if nothing."""


WITNESSES: Final[WeakSet[Witness]] = WeakSet()
"""Processes of this run, which say how they ended when a wait fails."""


def wait_until(
    predicate: Callable[[], _Answer],
    timeout_s: float,
    what: str,
    *,
    poll_s: float = 0.05,
) -> _Answer:
    """Call ``predicate`` until its answer is true; that answer.

    Args:
        predicate: is asked at least once, also when ``timeout_s`` is 0.
        timeout_s: seconds until giving up, on a machine that has nothing else to do (`PATIENCE`).
        what: what is waited for, for the failure's message.
        poll_s: seconds between two calls.

    Raises:
        AssertionError: ``timeout_s`` passed; with ``what`` and the last answer.
    """
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        asked = time.monotonic()
        answer = predicate()
        if answer:
            return answer
        took = time.monotonic() - asked
        if time.monotonic() > deadline:
            raise AssertionError(
                f"waited {timeout_s} s for {what}; last answer: {answer!r}"
                f" (the machine: {environment.describe()}){_accounts()}"
            )
        pause.wait(max(poll_s, took))  # an expensive look takes at most half of a core


def _accounts() -> str:
    return "".join(f"\n{account}" for account in sorted(w.account() for w in WITNESSES) if account)


@contextmanager
def within(seconds: float, what: str, *, at_least: float = 0.0) -> Iterator[None]:
    """Assert that the block ends in time; for what is known by nothing but the time it takes.

    What it must not do instead has to take longer than `PATIENCE` times the bound: that is the
    distance that keeps a busy machine from failing the test.

    Args:
        seconds: bound on a machine that has nothing else to do (`PATIENCE`).
        what: what the block does, for the failure's message.
        at_least: seconds that it must take, on any machine.
    """
    began = time.monotonic()
    yield
    took, most = time.monotonic() - began, seconds * PATIENCE
    assert at_least <= took < most, (
        f"{what} took {took:.1f} s, not {at_least:g} to {most:g} (the machine:"
        f" {environment.describe()})"
    )
