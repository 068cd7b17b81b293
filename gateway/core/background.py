"""Blocking calls that cannot be interrupted, made in a thread so that their caller stays awake.

Some libraries offer no other way to connect or to ask than one that returns when it pleases. The
caller waits for such a call in short steps, does meanwhile what must not wait, and can give up.
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
"""Called some ten times a second while an answer is waited for; what it raises ends the wait."""

_STEP_S: Final = 0.1


def keep_waiting() -> None:
    """Do nothing: the `OnWait` of a caller that has nothing to do meanwhile."""


def call_in_background(
    work: Callable[[], _Result],
    *,
    on_wait: OnWait,
    discard: Callable[[_Result], object] = lambda result: None,
) -> _Result:
    """Return or raise what `work` does.

    Args:
        work: Runs in a thread of its own; has limits of its own, because nothing ends it.
        on_wait: What it raises is raised here at once, and the thread is left to itself.
        discard: Gets the result that comes after that, in the thread, to close it.
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
    """Discard a result that came between the last look and the end of the wait."""
    if not future.cancelled() and future.exception() is None:
        discard(future.result())
