"""Uninterruptible blocking calls, run in a thread so that the caller stays responsive.

Some libraries offer only calls without a timeout to connect or to query. The caller waits for such
a call in short steps, does urgent work meanwhile, and can give up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from typing import Final, TypeVar

__all__ = ["OnWait", "call_in_background", "keep_waiting"]

_Result = TypeVar("_Result")

OnWait = Callable[[], None]
"""Callback of a wait, called about ten times a second; an exception from it ends the wait."""

_STEP_S: Final = 0.1


def keep_waiting() -> None:
    """Do nothing: the `OnWait` of a caller that has nothing else to do."""


def call_in_background(
    work: Callable[[], _Result],
    *,
    on_wait: OnWait,
    discard: Callable[[_Result], object] = lambda result: None,
) -> _Result:
    """Return the result of `work`, or raise its exception.

    Args:
        work: Function that runs in a thread of its own; it needs its own limits, because nothing
            stops it.
        on_wait: Callback of the wait; its exception is raised here at once, and the thread is
            abandoned.
        discard: Function that closes a result that arrives after that; called in the thread.
    """
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(result)
        except InvalidStateError:
            discard(result)

    # A daemon thread: a call that hangs must not keep the process from ending.
    threading.Thread(target=run, name="pgsluice call", daemon=True).start()
    try:
        while not wait([future], _STEP_S).done:
            on_wait()
    except BaseException:
        if not future.cancel():
            future.add_done_callback(lambda _: _discard_result(future, discard))
        raise
    return future.result()


def _discard_result(future: Future[_Result], discard: Callable[[_Result], object]) -> None:
    """Discard a result that arrived between the last check and the end of the wait."""
    if not future.cancelled() and future.exception() is None:
        discard(future.result())
